"""The weight-gradient family: a sum over pixels, split over programs until the device is full, in a fixed order.

Serves every layout of `bwd_weight`. Standard library only. The partial sums of a tile lie in the call's workspace
behind one counter for each tile, which the launcher zeroes on the stream; the last program to arrive adds them up.
"""

from typing import NamedTuple

from aotconv import gemm
from aotconv.pack import Artifact
from aotconv.plan import kernel_step
from aotconv.problem import ITEMSIZE, Problem

DEPTHWISE = ("dw", "dwany")
GATHER = {"cl": 1.0, "any": 8.0, "dw": 1.0, "dwany": 6.0}
COUNTER_BYTES, PARTIAL_BYTES, ALIGN = 4, 4, 256
MIN_STEPS = 4               # a split that does less spends its time on the sum
MAX_SPLITS = 256
MULTIPROCESSORS = 132       # what splits are chosen for where the device is not known better
SUM_US = 1.5                # writing partial sums and adding them up, beside the bytes


class Shape(NamedTuple):
    """What is computed: `rows` x `columns` weights for each of `groups` and each of `taps`, summed over `pixels`."""

    rows: int
    columns: int
    groups: int
    taps: int
    pixels: int
    bytes: int


class Prepared(NamedTuple):
    """What an estimate needs of an artifact. block: pixels of a step."""

    m: int
    n: int
    block: int
    layout: str
    resident: int
    step_us: float


def shape_of(problem: Problem) -> Shape:
    """The problem's Shape."""
    v = problem.values
    return Shape(v["C_out"], v["C_in"], problem.groups, v["taps"], v["pixels"], problem.bytes)


def prepare(artifact: Artifact) -> Prepared:
    """The artifact's Prepared."""
    tile, layout = artifact.tile, artifact.kernel.split("_")[1]
    m, n = tile["BLOCK_M"], tile["BLOCK_N"]
    size = ITEMSIZE.get(artifact.dtype, 4)
    if layout in DEPTHWISE:
        load = 2 * GATHER[layout] * m * n * size / gemm.LOAD_BYTES_US
        return Prepared(1, n, m, layout, gemm.resident(artifact), load)
    k = tile["BLOCK_K"]
    work = 2 * m * n * k / gemm.MATRIX_FLOPS_US[artifact.dtype]
    load = (m + n) * GATHER[layout] * k * size / gemm.LOAD_BYTES_US
    return Prepared(m, n, k, layout, gemm.resident(artifact), max(work, load))


def tiles(prepared: Prepared, shape: Shape) -> tuple[int, int, int]:
    """Tiles of rows and of columns, and how often that grid is repeated."""
    if prepared.layout in DEPTHWISE:
        return 1, -(-shape.groups * shape.rows // prepared.n), shape.taps
    if prepared.layout == "cl":
        return -(-shape.rows // prepared.m), -(-shape.columns // prepared.n), shape.groups * shape.taps
    return -(-shape.rows // prepared.m), -(-shape.columns * shape.taps // prepared.n), shape.groups


def split(prepared: Prepared, shape: Shape, multiprocessors: int = MULTIPROCESSORS) -> tuple[int, int]:
    """(splits, pixels of a split): enough programs to fill the device, each with MIN_STEPS steps at least."""
    rows, columns, repeats = tiles(prepared, shape)
    blocks = -(-shape.pixels // prepared.block)
    wanted = prepared.resident * multiprocessors // max(rows * columns * repeats, 1)
    splits = max(min(wanted, blocks // MIN_STEPS, MAX_SPLITS), 1)
    each = -(-blocks // splits)
    return -(-blocks // each), each * prepared.block


def programs(prepared: Prepared, shape: Shape) -> int:
    """Size of the flat grid."""
    rows, columns, repeats = tiles(prepared, shape)
    return rows * columns * repeats * split(prepared, shape)[0]


def estimate_us(prepared: Prepared, shape: Shape, multiprocessors: int) -> float:
    """Microseconds, for ranking."""
    rows, columns, repeats = tiles(prepared, shape)
    splits, share = split(prepared, shape)
    count = rows * columns * repeats * splits
    together = min(prepared.resident, -(-count // multiprocessors))
    waves = -(-count // (together * multiprocessors))
    step_us = max(together * prepared.step_us, gemm.STEP_US)
    busy = waves * (gemm.PROGRAM_US + share / prepared.block * step_us)
    sums = SUM_US + 2 * PARTIAL_BYTES * count * prepared.m * prepared.n / gemm.MEMORY_BYTES_US if splits > 1 else 0
    return gemm.LAUNCH_US + max(busy, shape.bytes / gemm.MEMORY_BYTES_US) + sums


def launch(artifact: Artifact, problem: Problem, handle: int, slots: dict[str, int]):
    """(steps, workspace bytes, zeroed bytes)."""
    shape, prepared = shape_of(problem), prepare(artifact)
    rows, columns, repeats = tiles(prepared, shape)
    splits, share = split(prepared, shape)
    count = rows * columns * repeats
    counters = -(-count * COUNTER_BYTES // ALIGN) * ALIGN if splits > 1 else 0
    partials = count * splits * prepared.m * prepared.n * PARTIAL_BYTES if splits > 1 else 0
    values = {**problem.values, "tiles_m": rows, "tiles_n": columns, "splits": splits, "share": share}
    step = kernel_step(artifact, handle, count * splits, values, slots, {"count": 0, "partial": counters})
    return [step], counters + partials, counters
