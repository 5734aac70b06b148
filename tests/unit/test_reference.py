"""The float64 reference against aten on the CPU, all ranks and ops; the bound against a dropped tap."""

import pytest
import torch

from aotconv.problem import forward_problem
from gen.reference import convolve, error_over_bound
from gen.sampled import at_places, places

SHAPES = [
    ((2, 6, 9), (4, 3, 3), dict(stride=2, padding=1, dilation=1, groups=2)),
    ((1, 4, 7, 8), (6, 4, 3, 2), dict(stride=(2, 1), padding=(3, 0), dilation=(1, 2))),
    ((2, 4, 5, 6, 5), (8, 1, 2, 3, 1), dict(stride=1, padding=(1, 2, 0), dilation=2, groups=4)),
]


@pytest.mark.parametrize("x, w, geometry", SHAPES)
def test_reference_is_aten(x, w, geometry):
    p = forward_problem(x, w, "f32", **geometry)
    a, b = torch.randn(x, dtype=torch.float64), torch.randn(w, dtype=torch.float64)
    call = (p.stride, p.padding, p.dilation, False, (0,) * p.rank, p.groups)
    y = torch.ops.aten.convolution(a, b, None, *call)
    g = torch.randn(y.shape, dtype=torch.float64)
    dx, dw, _ = torch.ops.aten.convolution_backward(g, a, b, None, *call, [True, True, False])
    torch.testing.assert_close(convolve("fwd", p, x=a, w=b), y)
    torch.testing.assert_close(convolve("bwd_input", p, w=b, y=g), dx)
    torch.testing.assert_close(convolve("bwd_weight", p, x=a, y=g), dw)


def test_bound_takes_rounding_and_refuses_a_dropped_tap():
    p = forward_problem((1, 64, 9, 9), (8, 64, 3, 3), "bf16", padding=1)
    x, w = torch.randn(1, 64, 9, 9).bfloat16(), torch.randn(8, 64, 3, 3).bfloat16()
    reference, magnitude = convolve("fwd", p, x=x, w=w), convolve("fwd", p, x=x.abs(), w=w.abs())
    rounded = reference.bfloat16()
    assert error_over_bound(rounded, reference, magnitude, 576, False) <= 1
    w[:, :, 0, 0] = 0
    dropped = convolve("fwd", p, x=x, w=w).bfloat16()
    assert error_over_bound(dropped, reference, magnitude, 576, False) > 5
    rounded[0, 0, 0, 0] = float("nan")
    assert error_over_bound(rounded, reference, magnitude, 576, False) == float("inf")


@pytest.mark.parametrize("x, w, geometry", SHAPES)
@pytest.mark.parametrize("op", ["fwd", "bwd_input", "bwd_weight"])
def test_sampled_reference_is_the_whole_one(op, x, w, geometry):
    p = forward_problem(x, w, "f32", **geometry)
    tensors = {"x": torch.randn(x), "w": torch.randn(w), "y": torch.randn(p.y.sizes)}
    del tensors[{"fwd": "y", "bwd_input": "x", "bwd_weight": "w"}[op]]
    expected = convolve(op, p, **tensors)
    magnitude = convolve(op, p, **{name: t.abs() for name, t in tensors.items()})
    index = places(expected.shape, 50, torch.Generator().manual_seed(1))
    value, absolute = at_places(op, p, index, **tensors)
    torch.testing.assert_close(value, expected[tuple(index.T)])
    torch.testing.assert_close(absolute, magnitude[tuple(index.T)])
