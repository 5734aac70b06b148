"""Convolutions in float64 by a loop over taps, on any device, and the error bound that results are judged by.

Needs torch alone. Checked against aten on the CPU by tests/unit/test_reference.py. Tensors are (batch, channels,
*spatial); x is the input, w (C_out, C_in / groups, *kernel), y the output, whichever of the three is computed.
"""

import itertools
import math

import torch

UNIT_ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


def convolve(op, problem, x=None, w=None, y=None, bias=None):
    """The missing one of x, w, y in float64. `problem` gives sizes and geometry (aotconv.problem.Problem)."""
    given = [t.double() for t in (x, w, y) if t is not None]
    if op == "fwd":
        result = forward(problem, *given)
    elif op == "bwd_input":
        result = backward_input(problem, *given)
    else:
        result = backward_weight(problem, *given)
    return result if bias is None else result + bias.double().reshape(-1, *[1] * problem.rank)


def windows(p):
    """For each tap: its index, and the slice of the padded input that it meets."""
    for tap in itertools.product(*map(range, p.w.sizes[2:])):
        yield tap, tuple(slice(k * d, k * d + (n - 1) * s + 1, s)
                         for k, d, n, s in zip(tap, p.dilation, p.y.sizes[2:], p.stride))


def padded(p, x):
    """x with zeros around, also where windows of the last output reach past the padding."""
    amounts = []
    for size, kernel, out, s, pad, d in reversed(list(zip(p.x.sizes[2:], p.w.sizes[2:], p.y.sizes[2:], p.stride, p.padding, p.dilation))):
        amounts += [pad, max((out - 1) * s + (kernel - 1) * d + 1 - size - pad, 0)]
    return torch.nn.functional.pad(x, amounts)


def split_groups(tensor, groups):
    """(batch, groups, channels of a group, positions)."""
    return tensor.reshape(tensor.shape[0], groups, tensor.shape[1] // groups, -1)


def forward(p, x, w):
    x, w = padded(p, x), w.reshape(p.groups, -1, *w.shape[1:])
    y = torch.zeros(p.y.sizes[0], p.groups, p.y.sizes[1] // p.groups, math.prod(p.y.sizes[2:]), dtype=torch.float64, device=x.device)
    for tap, window in windows(p):
        seen = split_groups(x[(..., *window)], p.groups)
        y += torch.einsum("goc,ngcp->ngop", w[(slice(None),) * 3 + tap], seen)
    return y.reshape(p.y.sizes)


def backward_input(p, w, y):
    grown = padded(p, torch.zeros(p.x.sizes, dtype=torch.float64, device=y.device))
    w, y_groups = w.reshape(p.groups, -1, *w.shape[1:]), split_groups(y, p.groups)
    for tap, window in windows(p):
        part = torch.einsum("goc,ngop->ngcp", w[(slice(None),) * 3 + tap], y_groups)
        grown[(..., *window)] += part.reshape(p.x.sizes[0], p.x.sizes[1], *p.y.sizes[2:])
    inner = tuple(slice(pad, pad + size) for pad, size in zip(p.padding, p.x.sizes[2:]))
    return grown[(..., *inner)]


def backward_weight(p, x, y):
    x, y_groups = padded(p, x), split_groups(y, p.groups)
    w = torch.zeros(p.groups, p.w.sizes[0] // p.groups, *p.w.sizes[1:], dtype=torch.float64, device=x.device)
    for tap, window in windows(p):
        seen = split_groups(x[(..., *window)], p.groups)
        w[(slice(None),) * 3 + tap] = torch.einsum("ngop,ngcp->goc", y_groups, seen)
    return w.reshape(p.w.sizes)


def error_over_bound(result, reference, magnitude, reduction: int, tf32: bool) -> float:
    """Largest |result - reference| over what rounding allows; above 1 is wrong, NaN is infinite.

    magnitude: the same convolution of absolute values. The bound: one rounding of the result, and fp32 accumulation
    of `reduction` products in any order (c = 2^-24 (8 + min(K / 8, 16 sqrt K))), 2^-9 more where TF32 rounds inputs.
    """
    c = 2.0**-24 * (8 + min(reduction / 8, 16 * math.sqrt(reduction))) + (2.0**-9 if tf32 else 0.0)
    bound = UNIT_ROUNDOFF[result.dtype] * reference.abs() + c * magnitude + 2.0**-25
    ratio = ((result.double() - reference).abs() / bound).max().item()
    return math.inf if math.isnan(ratio) else ratio
