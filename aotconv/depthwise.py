"""The depthwise family: one program for each tile of pixels x channels, a loop over taps, no matrix unit.

Serves the layouts dw (channels-last, one output for each input channel) and dwany (any strides, any multiplier) of
`fwd` and `bwd_input`. Standard library only. The cost: what a program reads from cache for each tap, in waves, and
device memory for each tensor once.
"""

from typing import NamedTuple

from aotconv import gemm
from aotconv.pack import Artifact
from aotconv.plan import kernel_step
from aotconv.problem import ITEMSIZE, Problem

CACHE_BYTES_US = {"dw": 60_000, "dwany": 12_000}  # what one multiprocessor reads for its taps
TAP_US = 0.05                                     # latency of one tap of one program


class Shape(NamedTuple):
    """pixels (of a phase) x channels, taps that a pixel visits, phases."""

    pixels: int
    channels: int
    taps: float
    phases: int
    bytes: int


class Prepared(NamedTuple):
    """What an estimate needs of an artifact."""

    m: int
    n: int
    resident: int
    tap_us: float


def shape_of(problem: Problem) -> Shape:
    """The problem's Shape; channels are those computed."""
    values, phases = problem.values, problem.values["phases"]
    channels = values["outputs"] if problem.op == "fwd" else values["channels"]
    multiplier = 1 if problem.op == "fwd" else values["C_out"]
    return Shape(values["pixels"], channels, values["taps"] * multiplier / phases, phases, problem.bytes)


def prepare(artifact: Artifact) -> Prepared:
    """The artifact's Prepared."""
    m, n = artifact.tile["BLOCK_M"], artifact.tile["BLOCK_N"]
    bytes_us = CACHE_BYTES_US[artifact.kernel.split("_")[1]]
    return Prepared(m, n, gemm.resident(artifact), m * n * ITEMSIZE[artifact.dtype] / bytes_us)


def programs(prepared: Prepared, shape: Shape) -> int:
    """Size of the flat grid."""
    return -(-shape.pixels // prepared.m) * -(-shape.channels // prepared.n) * shape.phases


def estimate_us(prepared: Prepared, shape: Shape, multiprocessors: int) -> float:
    """Microseconds, for ranking."""
    count = programs(prepared, shape)
    together = min(prepared.resident, -(-count // multiprocessors))
    waves = -(-count // (together * multiprocessors))
    tap_us = max(together * prepared.tap_us, TAP_US)
    return gemm.LAUNCH_US + max(waves * (gemm.PROGRAM_US + shape.taps * tap_us), shape.bytes / gemm.MEMORY_BYTES_US)


def launch(artifact: Artifact, problem: Problem, handle: int, slots: dict[str, int]):
    """(steps, workspace bytes, zeroed bytes)."""
    shape, tile = shape_of(problem), artifact.tile
    rows, columns = -(-shape.pixels // tile["BLOCK_M"]), -(-shape.channels // tile["BLOCK_N"])
    values = {**problem.values, "tiles_m": rows, "tiles_n": columns}
    return [kernel_step(artifact, handle, rows * columns * shape.phases, values, slots)], 0, 0
