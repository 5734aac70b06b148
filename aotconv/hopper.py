"""The Hopper family: implicit GEMM through tensor maps, in three schedules (docs/hopper.md says how they work).

Serves the layouts pipe, coop, pp, their tiled twins (a `t` at the end) and their swapped ones (`s`) of `fwd`, and of
`bwd_input` at stride 1, which is a forward convolution over y: the kernels' names are then that one's, and their x is
the problem's y. Standard library only. The cost is the time of the busiest multiprocessor; its numbers stand in one
table for each schedule.
"""

from typing import NamedTuple

from aotconv import gemm
from aotconv.pack import Artifact
from aotconv.plan import kernel_step
from aotconv.problem import DIMS, ITEMSIZE, Layout, Problem, mirrored_padding, window_corners

MULTIPROCESSORS = 132                  # where the device is not known better
MAX_SPLITS, MIN_STEPS = 16, 4          # of a reduction; a split of fewer steps spends its time on the sum
MAX_UNITS = 4                          # splits of tiles, for each multiprocessor
BOX = 64                               # channels whose weights one load brings
COUNTER_BYTES, PARTIAL_BYTES, ALIGN = 4, 4, 256
STRIDE_BYTES = 16                      # what a tensor map's strides are multiples of
# CUtensorMapDataType, and the words that end a recipe.
MAP_DTYPES = {"f16": 6, "bf16": 9, "f32": 7, "tf32": 11}
TILED, IM2COL = 0, 1
TENSORS = {"fwd": {"x": "x", "w": "w", "y": "y"}, "bwd_input": {"x": "y", "w": "w", "y": "x"}}  # of a kernel's names
PROMOTE_128, FILL_ZERO = 2, 0


class Schedule(NamedTuple):
    """Microseconds of one multiprocessor of an H200."""

    start: float      # from the launch to the first product
    restart: float    # the part of it that each further tile of a place pays
    tile: float       # a tile's end, besides its bytes
    hidden: float     # the part of an end that other tiles' products cover
    step: float       # the least that one step of one tile takes


SCHEDULES = {
    "pipe": Schedule(start=0.90, restart=0.77, tile=0.53, hidden=0.23, step=0.100),
    "coop": Schedule(start=0.26, restart=0.0, tile=1.29, hidden=0.41, step=0.181),
    "pp": Schedule(start=0.79, restart=0.0, tile=0.62, hidden=0.42, step=0.096),
}
LAUNCH_US = 0.23
FLOPS_US = {"f16": 5.74e6, "bf16": 5.74e6, "tf32": 2.87e6}  # of one multiprocessor
STEP_US, FRAGMENT_US = 0.0139, 0.0055                       # of a step besides: in all, and for each 64 rows
LOAD_BYTES_US = 107_700                                     # what one multiprocessor brings into shared memory
GATHER, GATHER_US = 1.45, 0.2                               # an im2col map: its pixel in pixels of a matrix, its start
STORE_BYTES_US = 27_500                                     # a tile's output
MEMORY_BYTES_US = 12e6                                      # of the device, its cache included
SPLIT_US, PARTIAL_BYTES_US = 3.8, 43_600                    # zeroed counters and a sum; what a program reads of partial sums


class Shape(NamedTuple):
    """rows (pixels) x columns (channels of the result), and what is summed."""

    rows: int
    columns: int
    channels: int
    taps: int
    bytes: int


class Prepared(NamedTuple):
    """What an estimate needs of an artifact, worked out once."""

    schedule: str
    m: int
    n: int
    k: int
    resident: int
    work_us: float      # matrix work of one step of one tile
    start_us: float     # from the launch to the first product
    pixels_us: float    # loads of a step's pixels
    row_us: float       # loads of one channel's weights
    store_us: float     # a tile's output


class Work(NamedTuple):
    """How a problem is cut up: a unit is one split of one tile."""

    tiles_m: int
    tiles_n: int
    steps: int
    splits: int

    @property
    def units(self) -> int:
        return self.tiles_m * self.tiles_n * self.splits


def schedule_of(kernel: str) -> str:
    """pipe, coop or pp, of a kernel's name."""
    layout = kernel.split("_")[1]
    return layout if layout in SCHEDULES else layout[:-1]


def shape_of(problem: Problem) -> Shape:
    """The problem's Shape."""
    v = problem.values
    columns, channels = (v["C_in"], v["C_out"]) if problem.op == "bwd_input" else (v["C_out"], v["C_in"])
    return Shape(v["pixels"], columns, channels, v["taps"], problem.bytes)


def prepare(artifact: Artifact) -> Prepared:
    """The artifact's Prepared."""
    tile, size = artifact.tile, ITEMSIZE.get(artifact.dtype, 4)
    m, n, k = tile["BLOCK_M"], tile["BLOCK_N"], tile["BLOCK_K"]
    work = 2 * m * n * k / FLOPS_US[artifact.dtype] + STEP_US + FRAGMENT_US * m / 64
    row = k * size / LOAD_BYTES_US
    matrix, schedule = artifact.kernel.split("_")[1].endswith("t"), schedule_of(artifact.kernel)
    start = SCHEDULES[schedule].start + (0.0 if matrix else GATHER_US)
    return Prepared(schedule, m, n, k, gemm.resident(artifact), work, start, m * row * (1.0 if matrix else GATHER), row,
                    m * n * size / STORE_BYTES_US)


def work(prepared: Prepared, shape: Shape, multiprocessors: int) -> Work:
    """The best way to cut the problem up."""
    return cut(prepared, shape, multiprocessors)[1]


def cut(prepared: Prepared, shape: Shape, multiprocessors: int) -> tuple[float, Work]:
    """(busy microseconds, the best way to cut the problem up): splits only where the schedule has them and they pay."""
    tiles_m, tiles_n = -(-shape.rows // prepared.m), -(-shape.columns // prepared.n)
    steps = shape.taps * -(-shape.channels // prepared.k)
    whole = Work(tiles_m, tiles_n, steps, 1)
    limit = min(steps // MIN_STEPS, MAX_SPLITS, MAX_UNITS * multiprocessors // (tiles_m * tiles_n))
    if prepared.schedule != "coop" or limit < 2:
        return busy_us(prepared, shape, whole, multiprocessors), whole
    fitting = multiprocessors * prepared.resident // (tiles_m * tiles_n)
    choices = [whole, *(Work(tiles_m, tiles_n, steps, s) for s in sorted({2, 3, 4, 6, 8, fitting}) if 1 < s <= limit)]
    return min(((busy_us(prepared, shape, w, multiprocessors), w) for w in choices), key=lambda found: found[0])


def busy_us(prepared: Prepared, shape: Shape, w: Work, multiprocessors: int) -> float:
    """Microseconds of the multiprocessor that has the most to do."""
    s = SCHEDULES[prepared.schedule]
    units = -(-w.tiles_m * w.tiles_n * w.splits // multiprocessors)
    turns = -(-units // min(prepared.resident, units))
    steps = -(-w.steps // w.splits)
    weights = min(prepared.n, -(-shape.columns // BOX) * BOX / w.tiles_n)
    step = max(prepared.work_us, prepared.pixels_us + weights * prepared.row_us)
    loop = max(units * steps * step, turns * steps * max(prepared.work_us, s.step), shape.bytes / MEMORY_BYTES_US)
    end, split = s.tile + prepared.store_us, 0.0
    if w.splits > 1:
        end += w.splits * PARTIAL_BYTES * prepared.m * prepared.n / PARTIAL_BYTES_US
        split = SPLIT_US
    return split + prepared.start_us * (1 + (turns - 1) * s.restart) + loop + end * (1 + (turns - 1) * (1 - s.hidden))


def programs(prepared: Prepared, shape: Shape) -> int:
    """An upper bound of the flat grid."""
    return -(-shape.rows // prepared.m) * -(-shape.columns // prepared.n)


def estimate_us(prepared: Prepared, shape: Shape, multiprocessors: int) -> float:
    """Microseconds, for ranking."""
    return LAUNCH_US + cut(prepared, shape, multiprocessors)[0]


def launch(artifact: Artifact, problem: Problem, handle: int, slots: dict[str, int], multiprocessors: int = MULTIPROCESSORS,
           cap: int | None = None, splits: int | None = None):
    """(steps, workspace bytes, zeroed bytes). cap, splits: at most so many programs, just so many splits, for tests."""
    prepared, shape = prepare(artifact), shape_of(problem)
    w = work(prepared, shape, multiprocessors)
    if splits:
        w = w._replace(splits=max(min(splits, w.steps), 1))
    grid = w.units
    if prepared.schedule != "pipe":
        grid = min(grid, multiprocessors * prepared.resident, cap or grid)
    counters = partials = 0
    if w.splits > 1:
        counters = -(-w.tiles_m * w.tiles_n * COUNTER_BYTES // ALIGN) * ALIGN
        partials = w.units * prepared.m * prepared.n * PARTIAL_BYTES
    values = {**kernel_values(problem), **w._asdict()}
    recipes = {d["name"]: recipe(d, artifact, problem, slots) for d in artifact.descriptors}
    step = kernel_step(artifact, handle, grid, values, slots, {"count": 0, "partial": counters}, recipes)
    return [step], counters + partials, counters


def kernel_values(p: Problem) -> dict[str, int]:
    """The problem's values by the names of the kernels' arguments: those of the forward convolution that it is."""
    if p.op == "fwd":
        return p.values
    values = {**p.values, "C_out": p.values["C_in"]}
    for d, size, pad in zip(DIMS[p.rank], p.x.sizes[2:], mirrored_padding(p)):
        values[f"out_{d}"], values[f"pad_{d}"] = size, pad
    return values


def trials(artifact: Artifact) -> tuple[dict, ...]:
    """Arguments of `launch` that admission tries besides none: several tiles to a program, and splits."""
    schedule = schedule_of(artifact.kernel)
    if schedule == "pipe":
        return ()
    caps = ({"cap": 1}, {"cap": 3})
    return caps if schedule == "pp" else (*caps, {"splits": 2}, {"splits": 5, "cap": 3})


# --- tensor maps: innermost dimension first, strides in bytes of all but the first ---------------------------------


def recipe(descriptor: dict, artifact: Artifact, problem: Problem, slots: dict[str, int]) -> list[int]:
    """The words from which the launcher encodes a map for each call's own addresses."""
    tensor = TENSORS[problem.op][descriptor["name"][0]]
    head = [slots[tensor], 0]
    tail = [descriptor["swizzle"], PROMOTE_128, FILL_ZERO]
    dtype, box = MAP_DTYPES[artifact.dtype], descriptor["box"]
    dims, strides = w_matrix(problem) if tensor == "w" else pixel_matrix(problem, tensor)
    kind = next(a.kind for a in artifact.arguments if a.name == descriptor["name"])
    if kind == "im2col":
        dims, strides = whole(getattr(problem, tensor))
        lower, upper = corners(problem)
        pixels, channels = box
        place = [*lower, *upper, channels, pixels, 1, *reversed(problem.stride), 1]
        return [*head, IM2COL, dtype, len(dims), *dims, *byte_strides(dims, strides, problem), *place, *tail]
    place = [*reversed(box), *[1] * len(dims)]
    return [*head, TILED, dtype, len(dims), *dims, *byte_strides(dims, strides, problem), *place, *tail]


def whole(t: Layout):
    """A tensor as it is: channels, then the spatial dimensions from the innermost, then the batch."""
    return [t.sizes[1], *reversed(t.sizes[2:]), t.sizes[0]], [*reversed(t.strides[2:]), t.strides[0]]


def pixel_matrix(p: Problem, tensor: str):
    """The result, or what a convolution of one tap reads: channels, pixels."""
    return [getattr(p, tensor).sizes[1], p.values["pixels"]], [p.values[f"{tensor}_pitch"]]


def w_matrix(p: Problem):
    """w: input channels, taps, output channels. A step past the last channel reads zeros, not the next tap."""
    return [p.w.sizes[1], p.values["taps"], p.w.sizes[0]], [p.values["w_pitch"], p.w.strides[0]]


def corners(p: Problem):
    """(lower, upper) of the box in which a tap's first position moves, innermost dimension first."""
    lower, upper = zip(*window_corners(p))
    return list(lower[::-1]), list(upper[::-1])


def byte_strides(dims: list[int], strides: list[int], p: Problem) -> list[int]:
    """Strides of dims 1 and up. A dimension of size 1 may have any stride; it gets one that the encoder accepts."""
    size, found, span = ITEMSIZE[p.dtype], [], dims[0] * ITEMSIZE[p.dtype]
    for length, stride in zip(dims[1:], strides):
        step = stride * size if length > 1 else -(-span // STRIDE_BYTES) * STRIDE_BYTES
        found.append(step)
        span = max(span, step * length)
    return found
