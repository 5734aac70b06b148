"""Problems for the kernels that read tensor maps. Standard library only.

Channel counts of every residue that 16-byte strides allow, tiles that span images, reductions shorter than the ring
and far longer, many tiles, every mix of stride, padding and dilation, views that leave gaps. Gradients of the input are
the same at stride 1, and one of more pixels than windows reach. Small grids and splits are tried on each of them by
gen/admit.py.
"""

from dataclasses import replace

from aotconv.problem import Layout, Problem, channels_last, contiguous, forward_problem, with_op

# (batch, C_in, C_out), spatial sizes by rank, and the rest of forward_problem's arguments; the last of a geometry's
# pair is for the innermost dimension. Channels are in vectors: 16 bytes of a half type, and no less is asked of others.
VECTOR = 8
SMALL, MIDDLE, WIDE, TINY = ({1: (61,), 2: (13, 11), 3: (5, 6, 7)}, {1: (90,), 2: (9, 10), 3: (4, 5, 5)},
                             {1: (700,), 2: (29, 31), 3: (9, 11, 10)}, {1: (7,), 2: (5, 3), 3: (3, 2, 3)})
GATHERED = (
    ((1, 1, 1), TINY, dict(kernel=(1, 1))),
    ((2, 3, 5), SMALL, dict(padding=(1, 1), bias=True)),
    ((3, 5, 9), SMALL, dict(kernel=(3, 5), stride=(2, 3), padding=(1, 2))),
    ((1, 9, 3), SMALL, dict(padding=(4, 4), dilation=(2, 2), bias=True)),
    ((2, 17, 33), WIDE, dict(padding=(3, 3), dilation=(3, 1))),
    ((9, 33, 17), TINY, dict(kernel=(2, 3), stride=(1, 2), padding=(0, 1), bias=True)),
    ((1, 8, 8), WIDE, dict(padding=(1, 1))),
    ((40, 2, 41), MIDDLE, dict(padding=(1, 1), bias=True)),
    ((2, 129, 9), MIDDLE, dict(kernel=(1, 1), stride=(2, 2))),
    ((3, 65, 7), TINY, dict(padding=(1, 1), bias=True)),
    ((1, 4, 16), WIDE, dict(kernel=(8, 4), stride=(8, 4))),
    ((2, 6, 4), TINY, dict(kernel=(1, 1), padding=(2, 3))),
)
MATRICES = (
    ((1, 1, 1), TINY, {}),
    ((2, 3, 5), SMALL, dict(bias=True)),
    ((1, 9, 17), WIDE, {}),
    ((2, 129, 9), MIDDLE, dict(bias=True)),
    ((40, 33, 41), MIDDLE, {}),
    ((3, 65, 7), TINY, dict(bias=True)),
)


def map_cases(op: str, rank: int, tiled: bool, dtype: str) -> list[Problem]:
    """The problems for one kernel and dtype."""
    rows = [(sizes, spatial, {"kernel": (1, 1), **more}) for sizes, spatial, more in MATRICES] if tiled else GATHERED
    if op == "fwd":
        problems = [problem(rank, dtype, *row) for row in rows]
    else:
        problems = [gradient(problem(rank, dtype, sizes, spatial, {**more, "stride": (1, 1)})) for sizes, spatial, more in rows]
    more = [] if tiled or op == "fwd" else [with_fewer_windows(p) for p in problems[3:4]]
    return problems + more + [with_gaps(p, tiled) for p in problems[1:4]]


def problem(rank: int, dtype: str, sizes, spatial, more: dict) -> Problem:
    """One row of the tables above."""
    batch, C_in, C_out = sizes[0], sizes[1] * VECTOR, sizes[2] * VECTOR
    more = dict(more)
    bias = more.pop("bias", False)
    geometry = {name: spread(pair, rank) for name, pair in more.items()}
    kernel = geometry.pop("kernel", (3,) * rank)
    return forward_problem((batch, C_in, *spatial[rank]), (C_out, C_in, *kernel), "f32" if dtype == "tf32" else dtype,
                           bias=bias, tf32=dtype == "tf32", **geometry)


def spread(pair: tuple[int, int], rank: int) -> tuple[int, ...]:
    """The second number for the innermost dimension, the first for the others."""
    return (pair[0],) * (rank - 1) + (pair[1],)


def gradient(p: Problem) -> Problem:
    """The same convolution, its input computed; the bias is that of a transposed call."""
    return replace(with_op(p, "bwd_input"), bias=contiguous((p.x.sizes[1],)) if p.bias else None)


def with_fewer_windows(p: Problem) -> Problem:
    """The last window of each row was not taken: the output padding of a transposed call."""
    return replace(p, y=channels_last((*p.y.sizes[:-1], p.y.sizes[-1] - 1)))


def with_gaps(p: Problem, tiled: bool) -> Problem:
    """The same sizes as views of larger tensors: half of the channels and rows of what is read, part of each output
    channel's weights."""
    name = "x" if p.op == "fwd" else "y"
    sizes = getattr(p, name).sizes
    grown = (sizes[0], 2 * sizes[1], *sizes[2:-1], sizes[-1] + (0 if tiled else 3))
    w = Layout(p.w.sizes, (p.w.strides[0] + 64, *p.w.strides[1:]))
    bias = Layout(p.bias.sizes, (3,), 2) if p.bias else None
    return replace(p, **{name: Layout(sizes, channels_last(grown).strides)}, w=w, bias=bias)
