"""Memory formats against torch's own decisions."""

import itertools
import random

import pytest
import torch

from aotconv.formats import lift, made_contiguous, result_is_channels_last, result_layout, says_channels_last
from aotconv.problem import Layout

def torch_says(sizes, strides) -> bool:
    """Padding allocates its result in the suggested memory format of its input, and makes every size at least 3."""
    return torch.constant_pad_nd(torch.empty_strided(sizes, strides), (1,) * 2 * len(sizes)).stride(1) == 1


def random_layout(draw, rank):
    """Sizes with many ones; strides of a random order, often with gaps, sometimes overlapping or with ties."""
    sizes = [draw.choice((1, 1, 2, 3, 4)) for _ in range(rank)]
    order, strides, step = draw.sample(range(rank), rank), [0] * rank, draw.choice((1, 1, 1, 2))
    if draw.random() < 0.5:
        order = draw.choice(([1, *range(rank - 1, 1, -1), 0], list(range(rank - 1, -1, -1))))
    for dim in order:
        strides[dim] = step
        step *= sizes[dim] if draw.random() < 0.8 else draw.choice((1, 2, 5))
    if draw.random() < 0.2:
        strides[draw.randrange(rank)] = draw.choice((0, 1, 2, 7))
    return tuple(sizes), tuple(strides)


@pytest.mark.parametrize("rank", (4, 5))
def test_channels_last_is_torchs_decision(rank):
    draw, seen = random.Random(rank), {True: 0, False: 0}
    for _ in range(5000):
        sizes, strides = random_layout(draw, rank)
        assert says_channels_last(sizes, strides) == torch_says(sizes, strides), (sizes, strides)
        seen[torch_says(sizes, strides)] += 1
    assert min(seen.values()) > 200


def test_channels_last_of_small_sizes_and_strides():
    for sizes in itertools.product((1, 2), repeat=4):
        for strides in itertools.product((0, 1, 2, 4), repeat=4):
            assert says_channels_last(sizes, strides) == torch_says(sizes, strides), (sizes, strides)


def test_other_ranks_have_no_channels_last():
    assert not says_channels_last((2, 3, 4), (12, 1, 3)) and not says_channels_last((2, 3), (3, 1))


def test_lifted_and_made_contiguous_are_torchs():
    draw = random.Random(3)
    for _ in range(2000):
        sizes, strides = random_layout(draw, 3)
        tensor = torch.empty_strided(sizes, strides)
        flat = tensor.contiguous()
        assert made_contiguous(Layout(sizes, strides)).strides == flat.stride()
        assert lift(Layout(sizes, strides)) == (tuple(tensor.unsqueeze(2).shape), tensor.unsqueeze(2).stride())


@pytest.mark.parametrize("rank", (3, 4, 5))
def test_result_is_laid_out_as_atens(rank):
    """CPU's own rule is the same wherever one of the tensors has several channels and positions."""
    draw, seen = random.Random(rank), set()
    for _ in range(300):
        x, w = dense(draw, (2, 3, *(4,) * (rank - 2))), dense(draw, (5, 3, *(2,) * (rank - 2)))
        y = torch.convolution(x, w, None, [1] * (rank - 2), [0] * (rank - 2), [1] * (rank - 2), False, [0] * (rank - 2), 1)
        last = result_is_channels_last(*(Layout(tuple(t.shape), t.stride()) for t in (x, w)))
        seen.add(last)
        assert y.stride() == result_layout(y.shape, last).strides, (x.stride(), w.stride())
    assert seen == {True, False}


def dense(draw, sizes):
    """A dense tensor whose dimensions are stored in the order of its format, or with the first two swapped."""
    rank = len(sizes)
    order = draw.choice((tuple(range(rank)), (0, *range(2, rank), 1), (1, 0, *range(2, rank))))
    inverse = sorted(range(rank), key=order.__getitem__)
    return torch.randn([sizes[i] for i in order]).permute(inverse)
