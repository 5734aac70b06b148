"""A call as integers and back; what is not a convolution of ours is Uncovered and never anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotconv import geometry
from aotconv.geometry import BITS, LIMIT, Uncovered, pack_list, pack_words, problem_of, read_key, unpack_list
from runtime_rig import FWD, key

SMALL = st.integers(0, LIMIT - 1)
RANK = st.integers(1, 3)


@given(st.data(), RANK)
def test_lists_come_back(data, rank):
    values = tuple(data.draw(SMALL) for _ in range(rank))
    assert unpack_list(pack_list(values), rank) == values
    assert 0 <= pack_list(values) < 2**63


@given(st.data(), RANK, st.integers(0, 2), st.booleans(), st.integers(1, LIMIT - 1), st.booleans())
def test_a_key_is_the_call(data, rank, kind, transposed, groups, tf32):
    lists = [tuple(data.draw(SMALL) for _ in range(rank)) for _ in range(4)]
    stride, padding, dilation, extra = lists
    words = pack_words(kind, stride, padding, dilation, transposed, extra, groups, geometry.TF32 if tf32 else 0)
    sizes = tuple(data.draw(st.integers(0, 2**40)) for _ in range(rank + 2))
    strides = tuple(data.draw(st.integers(0, 2**40)) for _ in range(rank + 2))
    call = read_key([*words, 5, 0b101, 15, rank + 2, 8, *sizes, *strides, 6, 1, 4, 7, 1])
    assert (call.kind, call.transposed, call.tf32, call.groups, call.device) == (kind, transposed, tf32, groups, 5)
    assert (call.stride, call.padding, call.dilation, call.output_padding) == (stride, padding, dilation, extra)
    first, absent, third = call.tensors
    assert (first.sizes, first.strides, first.align, absent) == (sizes, strides, 8, None)
    assert (third.sizes, third.strides, call.dtypes) == ((7,), (1,), (15, None, 6))


ONE, TWO = (1, 1), (2, 2)


@pytest.mark.parametrize("stride, padding, dilation, extra, groups", [
    ((LIMIT, 1), ONE, ONE, ONE, 1), (ONE, (-1, 0), ONE, ONE, 1), (ONE, ONE, (1, -(2**63)), ONE, 1), (ONE, ONE, ONE, (0, LIMIT), 1),
    (ONE, ONE, ONE, ONE, 0), (ONE, ONE, ONE, ONE, -1), (ONE, ONE, ONE, ONE, -(2**63)), (ONE, ONE, ONE, ONE, LIMIT),
    ((1,) * 4, (0,) * 4, (1,) * 4, (0,) * 4, 1), (ONE, (1,), ONE, ONE, 1), (ONE, ONE, (1, 1, 1), ONE, 1), (ONE, ONE, ONE, (), 1),
])
def test_what_does_not_fit_has_no_words(stride, padding, dilation, extra, groups):
    assert pack_words(geometry.FWD, stride, padding, dilation, False, extra, groups) is None


def test_limits_themselves_fit():
    most = LIMIT - 1
    words = pack_words(geometry.FWD, (most,) * 3, (0,) * 3, (most,) * 3, True, (most,) * 3, most, geometry.TF32 | geometry.STRICT)
    assert all(0 <= word < 2**63 for word in words) and BITS * 3 < 63


def lists(stride=ONE, padding=(0, 0), dilation=ONE, transposed=False, extra=(0, 0), groups=1):
    return stride, padding, dilation, transposed, extra, groups


BAD = {
    "float64": key(dtype=7), "an int8 tensor": key(dtype=1), "channels differ": key(x=(2, 15, 9, 9)),
    "groups do not divide": key(w=(16, 8, 3, 3), lists=lists(groups=3)), "filters not divided": key(w=(15, 8, 3, 3), lists=lists(groups=2)),
    "groups without channels": key(lists=lists(groups=16)), "window too large": key(x=(2, 16, 2, 9), lists=lists()),
    "dilated window too large": key(lists=lists(dilation=(5, 1))), "stride 0": key(lists=lists(stride=(0, 1))),
    "dilation 0": key(lists=lists(dilation=(1, 0))), "output padding": key(lists=lists(extra=(1, 0))),
    "empty batch": key(x=(0, 16, 9, 9)), "no channels": key(x=(2, 0, 9, 9), w=(16, 0, 3, 3)), "no filters": key(w=(0, 16, 3, 3)),
    "empty kernel": key(w=(16, 16, 0, 3)), "empty image": key(x=(2, 16, 0, 9)), "unbatched": key(x=(16, 9, 9), x_strides=(81, 9, 1)),
    "weight of rank 3": key(w=(16, 16, 3), w_strides=(48, 3, 1)), "short bias": key(bias=15), "transposed channels": key(w=(8, 16, 3, 3), lists=lists(transposed=True)),
    "transposed to nothing": key(x=(2, 16, 1, 1), w=(16, 16, 1, 1), lists=lists(transposed=True, padding=(1, 1))),
    "large output padding": key(lists=lists(stride=TWO, transposed=True, extra=(2, 0))),
    "no spatial dimension": [0, 0, 0, 0, 1 << geometry.GROUPS_SHIFT, 0, 3, 15, 2, 16, 2, 16, 16, 1, 15, 2, 16, 16, 16, 16, 1],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_uncovered(name):
    with pytest.raises(Uncovered) as reason:
        problem_of(read_key(BAD[name]))
    assert len(str(reason.value)) > 10


def test_dtypes_that_differ_are_uncovered():
    words = key()
    words[geometry.KEY_HEAD] = 5
    with pytest.raises(Uncovered, match="differ"):
        problem_of(read_key(words))


GEOMETRY_LIST = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(st.tuples(*[st.integers(0, 6)] * 4), st.tuples(*[st.integers(0, 6)] * 4), GEOMETRY_LIST, GEOMETRY_LIST, GEOMETRY_LIST,
       st.booleans(), GEOMETRY_LIST, st.integers(1, 4), st.sampled_from((5, 6, 7, 15)))
def test_any_call_is_a_problem_or_uncovered(x, w, stride, padding, dilation, transposed, extra, groups, dtype):
    words = key(x, w, dtype=dtype, lists=(stride, padding, dilation, transposed, extra, groups))
    try:
        p = problem_of(read_key(words))
    except Uncovered:
        return
    assert not p.empty and p.op == ("bwd_input" if transposed else "fwd")
    for size, kernel, out, s, pad, dil in zip(p.x.sizes[2:], p.w.sizes[2:], p.y.sizes[2:], p.stride, p.padding, p.dilation):
        assert 0 <= (size + 2 * pad - dil * (kernel - 1) - 1) - (out - 1) * s  # every window lies in the padded input


def test_a_good_call_is_its_problem():
    p = problem_of(read_key(key(lists=FWD, bias=16, flags=geometry.TF32, dtype=6)))
    assert (p.op, p.arithmetic, p.y.sizes, p.y.strides) == ("fwd", "tf32", (2, 16, 9, 9), (1296, 1, 144, 16))
    assert p.bias.sizes == (16,)
