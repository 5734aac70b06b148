"""What is asked for: one convolution, as a frozen value, and the named numbers that kernels take from it.

Standard library only. The convolution is always seen from its forward side: x is the input, w the weight
(C_out, C_in / groups, *kernel), y the output; `op` says which of the three is computed from the other two.
A transposed convolution is the `bwd_input` of the convolution with the same weight: `transposed_problem` maps it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

OPS = ("fwd", "bwd_input", "bwd_weight")
DIMS = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
ITEMSIZE = {"f16": 2, "bf16": 2, "f32": 4}


@dataclass(frozen=True)
class Layout:
    """One tensor: sizes and strides in elements (batch, channel, *spatial), and the alignment of its address in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    align: int = 16

    @property
    def extent(self) -> int:
        """The largest offset of an element from the first, in elements."""
        return sum((size - 1) * abs(stride) for size, stride in zip(self.sizes, self.strides) if size)


def contiguous(sizes, align=16) -> Layout:
    """Row-major strides for `sizes`."""
    return Layout(tuple(sizes), strides_in_order(sizes, range(len(sizes))), align)


def channels_last(sizes, align=16) -> Layout:
    """Strides with the channel (dimension 1) innermost."""
    order = (0, *range(2, len(sizes)), 1)
    return Layout(tuple(sizes), strides_in_order(sizes, order), align)


def strides_in_order(sizes, order) -> tuple[int, ...]:
    """Dense strides, `order` naming the dimensions from outermost to innermost."""
    strides, step = [0] * len(sizes), 1
    for dim in reversed(tuple(order)):
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return tuple(strides)


@dataclass(frozen=True)
class Problem:
    """One convolution. `bias` is added to what `fwd` and `bwd_input` compute (the latter for transposed calls)."""

    op: str
    dtype: str
    x: Layout
    w: Layout
    y: Layout
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    bias: Layout | None = None
    tf32: bool = False

    @property
    def rank(self) -> int:
        return len(self.stride)

    @property
    def arithmetic(self) -> str:
        """The dtype tag of the kernels that serve it: float32 with TF32 allowed is `tf32`."""
        return "tf32" if self.dtype == "f32" and self.tf32 else self.dtype

    @property
    def flops(self) -> int:
        """Multiplications and additions, padding counted as work."""
        return 2 * prod(self.y.sizes) * prod(self.w.sizes[1:])

    @property
    def bytes(self) -> int:
        """Every tensor moved once."""
        return ITEMSIZE[self.dtype] * sum(prod(t.sizes) for t in (self.x, self.w, self.y))

    @property
    def empty(self) -> bool:
        return 0 in (*self.x.sizes, *self.w.sizes, *self.y.sizes)

    @cached_property
    def values(self) -> dict[str, int]:
        """Every number that a constraint, a hint or a kernel argument may name."""
        return problem_values(self)

    @cached_property
    def largest_value(self) -> int:
        """The largest of the values: whether 32-bit arguments can hold them."""
        return max(self.values.values())


def problem_values(p: Problem) -> dict[str, int]:
    """Sizes per group, strides in elements, geometry, extents. A dimension of size 1, whose index is always 0, has stride
    0, and 1 where it is the channel: kernels of unit stride take it, but no expanded channel."""
    dims = DIMS[p.rank]
    values = {
        "batch": p.x.sizes[0], "groups": p.groups,
        "C_in": p.w.sizes[1], "C_out": p.w.sizes[0] // p.groups,
        "x_align": p.x.align, "w_align": p.w.align, "y_align": p.y.align,
        "x_extent": p.x.extent, "w_extent": p.w.extent, "y_extent": p.y.extent,
        "has_bias": int(p.bias is not None), "b_c": p.bias.strides[0] if p.bias else 0,
        "itemsize": ITEMSIZE[p.dtype],
    }
    for tensor, layout, names in (("x", p.x, ("n", "c")), ("w", p.w, ("o", "c")), ("y", p.y, ("n", "c"))):
        for name, size, stride in zip(names + dims, layout.sizes, layout.strides):
            values[f"{tensor}_{name}"] = stride if size > 1 else int(name == names[1])
    for i, d in enumerate(dims):
        values[f"in_{d}"], values[f"out_{d}"] = p.x.sizes[2 + i], p.y.sizes[2 + i]
        values[f"kernel_{d}"] = p.w.sizes[2 + i]
        values[f"stride_{d}"], values[f"pad_{d}"], values[f"dil_{d}"] = p.stride[i], p.padding[i], p.dilation[i]
    values["taps"] = prod(p.w.sizes[2:])
    values["pixels"], values["phases"] = p.x.sizes[0] * prod(p.y.sizes[2:]), 1
    values["reduction"] = reduction(p)
    values["channels"], values["outputs"] = p.x.sizes[1], p.w.sizes[0]
    if p.op == "bwd_input":
        values.update(phase_values(p, dims))
    values["reach"] = max(abs(v) for v in window_reach(p))
    values.update(map_values(p))
    return values


def map_values(p: Problem) -> dict[str, int]:
    """What tensor maps have limits for. pitch: stride of the one axis that pixels (for w: taps) form, -1 where they form
    none. apart: the least stride of a dimension with several elements. corner: how far a window's first position may lie
    from the corners of what it moves over. span: of a window, less one."""
    values = {
        "x_pitch": pitch((p.x.sizes[0], *p.x.sizes[2:]), (p.x.strides[0], *p.x.strides[2:])),
        "y_pitch": pitch((p.y.sizes[0], *p.y.sizes[2:]), (p.y.strides[0], *p.y.strides[2:])),
        "w_pitch": pitch(p.w.sizes[2:], p.w.strides[2:]),
        "stride": max(p.stride), "pad": max(p.padding),
        "span": max((size - 1) * dil for size, dil in zip(p.w.sizes[2:], p.dilation)),
        "corner": max(max(-lower, lower + 1, -upper, upper + 1) for lower, upper in window_corners(p)),
    }
    for tensor, layout in (("x", p.x), ("w", p.w), ("y", p.y)):
        values[f"{tensor}_apart"] = min((s for n, s in zip(layout.sizes, layout.strides) if n > 1), default=1)
    return values


def window_corners(p: Problem):
    """(lower, upper) of the box in which a tap's first position moves, for each dimension; upper counts from the end.
    For the gradient of the input at stride 1, windows move over y."""
    if p.op == "bwd_input":
        rows = zip(p.y.sizes[2:], p.x.sizes[2:], (1,) * p.rank, mirrored_padding(p))
    else:
        rows = zip(p.x.sizes[2:], p.y.sizes[2:], p.stride, p.padding)
    for size, positions, stride, pad in rows:
        yield -pad, (positions - 1) * stride + 1 - size - pad


def mirrored_padding(p: Problem) -> tuple[int, ...]:
    """Of the forward convolution over y, its taps mirrored, that the gradient of the input is at stride 1; may be negative."""
    return tuple(dil * (kernel - 1) - pad for kernel, pad, dil in zip(p.w.sizes[2:], p.padding, p.dilation))


def pitch(sizes, strides) -> int:
    """Stride of the one axis that these dimensions form (outermost first), 0 for one element, -1 where they form none."""
    found, step = 0, 0
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size > 1:
            if found and stride != step:
                return -1
            found, step = found or stride, stride * size
    return found


def phase_values(p: Problem, dims) -> dict[str, int]:
    """How the gradient of the input is walked: input positions that leave the same remainder by the stride are a phase.

    cell: positions of a phase; step: taps from one that meets the phase to the next; hop: output positions between them.
    """
    values = {"phases": prod(p.stride), "pixels": p.x.sizes[0]}
    for d, size, stride, dil in zip(dims, p.x.sizes[2:], p.stride, p.dilation):
        values[f"cell_{d}"] = -(-size // stride)
        values[f"step_{d}"], values[f"hop_{d}"] = stride // gcd(stride, dil), dil // gcd(stride, dil)
        values["pixels"] *= values[f"cell_{d}"]
    return values


def reduction(p: Problem) -> int:
    """Products added up for one output element."""
    if p.op == "bwd_weight":
        return p.y.sizes[0] * prod(p.y.sizes[2:])
    channels = p.w.sizes[1] if p.op == "fwd" else p.w.sizes[0] // p.groups
    return channels * prod(p.w.sizes[2:])


def window_reach(p: Problem):
    """Input coordinates that a tap can touch, padding included: what index arithmetic must hold besides offsets."""
    for size, kernel, stride, pad, dil in zip(p.y.sizes[2:], p.w.sizes[2:], p.stride, p.padding, p.dilation):
        yield size * stride + kernel * dil + pad


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Positions of a window that moves over `size` elements."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def transposed_size(size: int, kernel: int, stride: int, padding: int, dilation: int, output_padding: int) -> int:
    """Size of the output of a transposed convolution over `size` elements."""
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1


def forward_problem(x, w, dtype="bf16", stride=1, padding=0, dilation=1, groups=1, bias=False, last=True, **more):
    """A `fwd` problem from plain sizes; ints stand for every dimension. `last`: dense channels-last, else row-major."""
    rank = len(x) - 2
    stride, padding, dilation = (spread(v, rank) for v in (stride, padding, dilation))
    y = (x[0], w[0], *map(output_size, x[2:], w[2:], stride, padding, dilation))
    layout = channels_last if last else contiguous
    b = contiguous((w[0],)) if bias else None
    return Problem("fwd", dtype, layout(x), layout(w), layout(y), stride, padding, dilation, groups, b, **more)


def spread(value, rank: int) -> tuple[int, ...]:
    """An int or a one-element list, for each of `rank` dimensions."""
    value = (value,) if isinstance(value, int) else tuple(value)
    return value * rank if len(value) == 1 else value


def with_op(p: Problem, op: str) -> Problem:
    """The same convolution, another tensor computed."""
    return replace(p, op=op)
