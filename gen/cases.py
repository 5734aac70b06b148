"""Problems that a variant must get right before it may serve. Standard library only.

Sizes are multiples of no tile; groups, dilation, padding beyond need, strides, one-pixel outputs, reductions shorter
than the pipeline and many times longer, several tiles each way, views and permuted strides all occur.
"""

from dataclasses import dataclass, replace
from math import prod

from gen.cases_hopper import map_cases
from aotconv.problem import Layout, Problem, channels_last, contiguous, forward_problem, with_op

SPATIAL = {1: (61,), 2: (13, 11), 3: (5, 6, 7)}
LONG = {1: (700,), 2: (29, 31), 3: (9, 11, 10)}

VECTORS = ("cl", "clodd", "dw", "dwt")  # layouts that read 16-byte channel vectors
ANY_STRIDES = ("any", "dwany")      # layouts that take every stride; tested in row-major memory and in views
DEPTHWISE = ("dw", "dwt", "dwany")
MAPPED = ("pipe", "coop", "pp")     # layouts that read tensor maps


@dataclass(frozen=True)
class Shape:
    """A convolution for any rank: channels per group in units of the vector, geometry the same in each dimension but
    for `skew`, which changes the last one."""

    batch: int
    C_in: int
    C_out: int
    kernel: int = 3
    stride: int = 1
    pad: int = 1
    dil: int = 1
    groups: int = 1
    long: bool = False
    skew: bool = False
    bias: bool = False


SHAPES = (
    Shape(1, 1, 1, kernel=1, pad=0),
    Shape(2, 3, 2, bias=True),
    Shape(3, 5, 9, stride=2, skew=True),
    Shape(1, 9, 5, pad=4, dil=2, bias=True),
    Shape(2, 2, 3, groups=3, skew=True),
    Shape(1, 17, 3, long=True),
    Shape(5, 3, 17, stride=3, pad=0, bias=True),
    Shape(2, 1, 1, groups=5, dil=3, pad=3, skew=True),
    Shape(1, 33, 33, pad=0, stride=2),
    Shape(2, 3, 2, stride=2, dil=2, pad=2, bias=True),            # half of the input meets no output position
    Shape(1, 9, 5, kernel=2, stride=4, dil=2, pad=1, skew=True),
    Shape(3, 4, 21, kernel=2, pad=1, long=True, bias=True, skew=True),
)


def cases(kernel_op: str, rank: int, layout: str, pin: int, index: str, dtype: str) -> list[Problem]:
    """The problems for one kernel and dtype; every one satisfies the kernel's constraints."""
    if layout.startswith(MAPPED):
        return map_cases(kernel_op, rank, layout.endswith("t"), dtype)
    vector = 16 // (4 if dtype in ("f32", "tf32") else 2) if layout in VECTORS else 1
    shapes = [depthwise(shape, layout) for shape in SHAPES] if layout in DEPTHWISE else SHAPES
    problems = [shaped(shape, rank, vector, layout, pin, dtype) for shape in shapes]
    if layout in ANY_STRIDES:
        problems += [odd_strides(p) for p in problems[1:6]]
    if index == "i64":
        problems.append(far_apart(rank, dtype))
    return [in_memory_of(kernel_op, p) for p in problems]


def depthwise(shape: Shape, layout: str) -> Shape:
    """One input channel a group: the shape's channels become groups; a multiplier where the kernel takes one."""
    if layout == "dwt":
        shape = replace(shape, stride=1, dil=1, skew=False)
    return replace(shape, groups=shape.groups * shape.C_in, C_in=1, C_out=min(shape.C_out, 3) if layout == "dwany" else 1)


def in_memory_of(op: str, p: Problem) -> Problem:
    """The problem for `op`, its result dense as a fresh allocation is; only `fwd` and `bwd_input` have a bias."""
    if op == "fwd":
        return p
    layout = channels_last if p.y == channels_last(p.y.sizes) else contiguous
    if op == "bwd_weight":
        return replace(with_op(p, op), w=p.w if p.w.align == 16 else contiguous(p.w.sizes), bias=None)
    bias = contiguous((p.x.sizes[1],)) if p.bias else None
    return replace(with_op(p, op), x=layout(p.x.sizes) if p.x.align < 16 else p.x, bias=bias)


def shaped(shape: Shape, rank: int, vector: int, layout: str, pin: int, dtype: str) -> Problem:
    """The shape as a Problem in the kernel's own memory format."""
    kernel = pin or shape.kernel
    groups, C_in = shape.groups, shape.C_in * vector
    if layout in DEPTHWISE:
        groups, C_in = shape.groups * vector, 1
    spatial = (LONG if shape.long else SPATIAL)[rank]
    last = lambda v, other: (v,) * (rank - 1) + (other,) if shape.skew else (v,) * rank
    kernels = (kernel,) * rank if pin else last(kernel, kernel + 2 if kernel > 1 else 1)
    C_out = shape.C_out * (1 if layout in ("clodd", *DEPTHWISE) else vector) + (1 if layout == "clodd" else 0)
    x = (shape.batch, C_in * groups, *spatial)
    w = (C_out * groups, C_in, *kernels)
    return forward_problem(
        x, w, "f32" if dtype == "tf32" else dtype, last(shape.stride, shape.stride + 1), last(shape.pad, shape.pad + 1),
        last(shape.dil, 1), groups, shape.bias, layout not in ANY_STRIDES, tf32=dtype == "tf32",
    )


def odd_strides(p: Problem) -> Problem:
    """The same sizes as views: x every second element of a bigger row, w permuted, y channels-last."""
    doubled = contiguous((*p.x.sizes[:-1], 2 * p.x.sizes[-1]))
    strides = (*doubled.strides[:-1], 2)
    swapped = channels_last(p.w.sizes).strides
    return replace(p, x=Layout(p.x.sizes, strides, 2), w=Layout(p.w.sizes, swapped, 4), y=channels_last(p.y.sizes))


def far_apart(rank: int, dtype: str) -> Problem:
    """Two images more than 2^31 elements apart: 32-bit offsets would wrap."""
    p = forward_problem((2, 1, *(4,) * rank), (3, 1, *(3,) * rank), "f32" if dtype == "tf32" else dtype, last=False, tf32=dtype == "tf32")
    return replace(p, x=replace(p.x, strides=(2**31 + 16, *p.x.strides[1:])))


def storage_elements(layout: Layout) -> int:
    """Elements between the first and the last, both included."""
    return layout.extent + 1 if prod(layout.sizes) else 0
