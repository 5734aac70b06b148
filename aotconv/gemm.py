"""The implicit-GEMM family: one program for each tile of rows (pixels) x columns (channels) of each group.

Serves the layouts cl, clodd, flat and any. Standard library only. The cost is a model of waves: programs fill the
device `resident` at a time on each multiprocessor; each takes a fixed time and a time for each step of its reduction,
in which matrix work and loads overlap; device memory bounds the whole. Its numbers are for one multiprocessor of an
H200 and rank variants of one target; they are no predictions.
"""

from typing import NamedTuple

from aotconv.pack import Artifact
from aotconv.plan import kernel_step
from aotconv.problem import ITEMSIZE, Problem

REGISTERS, SHARED, THREADS = 65_536, 233_472, 2_048  # of one multiprocessor
SHARED_OVERHEAD = 2_048                              # bytes that a program takes besides its own
LAUNCH_US, PROGRAM_US, STEP_US = 2.0, 1.2, 0.25
MEMORY_BYTES_US = 4.0e6
LOAD_BYTES_US = 60_000          # what one multiprocessor brings into shared memory
MATRIX_FLOPS_US = {"f16": 4.5e6, "bf16": 4.5e6, "tf32": 2.2e6, "f32": 0.25e6}
GATHER = {"cl": 1.0, "clodd": 1.2, "flat": 6.0, "any": 8.0}  # cost of an element of x, relative to 16-byte vectors


class Shape(NamedTuple):
    """The matrix product behind a problem, for each of `groups`: rows are pixels, columns the channels computed."""

    rows: int
    columns: int
    channels: int
    taps: float   # that a row visits: a phase of a strided gradient meets only some
    groups: int   # times phases
    bytes: int


class Prepared(NamedTuple):
    """What an estimate needs of an artifact, worked out once."""

    m: int
    n: int
    k: int
    resident: int      # programs that fit one multiprocessor
    step_us: float     # matrix work or loads of one step of one program, whichever takes longer
    by_tap: bool       # whole blocks of channels for each tap; else taps and channels are one axis


def shape_of(problem: Problem) -> Shape:
    """The problem's Shape."""
    values = problem.values
    columns, channels = values["C_out"], values["C_in"]
    if problem.op == "bwd_input":
        columns, channels = channels, columns
    phases = values["phases"]
    return Shape(values["pixels"], columns, channels, values["taps"] / phases, problem.groups * phases, problem.bytes)


def prepare(artifact: Artifact) -> Prepared:
    """The artifact's Prepared."""
    tile, layout = artifact.tile, artifact.kernel.split("_")[1]
    m, n, k = tile["BLOCK_M"], tile["BLOCK_N"], tile["BLOCK_K"]
    work = 2 * m * n * k / MATRIX_FLOPS_US[artifact.dtype]
    load = (m * GATHER[layout] + n) * k * ITEMSIZE.get(artifact.dtype, 4) / LOAD_BYTES_US
    return Prepared(m, n, k, resident(artifact), max(work, load), layout.startswith("cl"))


def resident(artifact: Artifact) -> int:
    """Programs of this artifact that fit one multiprocessor."""
    by_registers = REGISTERS // max(artifact.registers * artifact.threads, 1)
    return max(min(by_registers, SHARED // (artifact.shared + SHARED_OVERHEAD), THREADS // artifact.threads), 1)


def programs(prepared: Prepared, shape: Shape) -> int:
    """Size of the flat grid."""
    return -(-shape.rows // prepared.m) * -(-shape.columns // prepared.n) * shape.groups


def estimate_us(prepared: Prepared, shape: Shape, multiprocessors: int) -> float:
    """Microseconds, for ranking."""
    count = programs(prepared, shape)
    together = min(prepared.resident, -(-count // multiprocessors))
    waves = -(-count // (together * multiprocessors))
    k = prepared.k
    steps = shape.taps * -(-shape.channels // k) if prepared.by_tap else -(-shape.taps * shape.channels // k)
    step_us = max(together * prepared.step_us, STEP_US)
    return LAUNCH_US + max(waves * (PROGRAM_US + steps * step_us), shape.bytes / MEMORY_BYTES_US)


def launch(artifact: Artifact, problem: Problem, handle: int, slots: dict[str, int]):
    """(steps, workspace bytes, zeroed bytes)."""
    shape, tile = shape_of(problem), artifact.tile
    rows, columns = -(-shape.rows // tile["BLOCK_M"]), -(-shape.columns // tile["BLOCK_N"])
    values = {**problem.values, "tiles_m": rows, "tiles_n": columns}
    return [kernel_step(artifact, handle, rows * columns * shape.groups, values, slots)], 0, 0
