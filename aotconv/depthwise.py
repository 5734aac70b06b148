"""The depthwise family: one program for each tile of pixels x channels, a loop over taps, no matrix unit.

Serves the layouts dw (channels-last, one output for each input channel), dwt (the same at stride 1, several outputs a
lane) and dwany (any strides, any multiplier) of `fwd` and `bwd_input`. Standard library only. The cost: what a program reads from cache for each tap, in waves, and
device memory for each tensor once.
"""

from math import prod
from typing import NamedTuple

from aotconv import gemm
from aotconv.pack import Artifact
from aotconv.plan import kernel_step
from aotconv.problem import ITEMSIZE, Problem

CACHE_BYTES_US = {"dw": 60_000, "dwt": 60_000, "dwany": 12_000}  # what one multiprocessor reads for its taps
TAP_US = 0.05                                     # latency of one tap of one program


class Shape(NamedTuple):
    """pixels (of a phase) x channels, taps that a pixel visits, phases; images, rows and columns for kernels that tile them."""

    pixels: int
    channels: int
    taps: float
    phases: int
    bytes: int
    images: int
    rows: int
    columns: int


class Prepared(NamedTuple):
    """What an estimate needs of an artifact."""

    m: int
    n: int
    resident: int
    tap_us: float                        # of one program
    lane: tuple[int, int] | None = None  # rows and columns that a lane keeps


def shape_of(problem: Problem) -> Shape:
    """The problem's Shape; channels are those computed."""
    values, phases = problem.values, problem.values["phases"]
    channels = values["outputs"] if problem.op == "fwd" else values["channels"]
    multiplier = 1 if problem.op == "fwd" else values["C_out"]
    return Shape(values["pixels"], channels, values["taps"] * multiplier / phases, phases, problem.bytes,
                 values["batch"], values.get("out_h", 1), values["out_w"])


def prepare(artifact: Artifact) -> Prepared:
    """The artifact's Prepared."""
    m, n = artifact.tile["BLOCK_M"], artifact.tile["BLOCK_N"]
    tap_us = m * n * ITEMSIZE[artifact.dtype] / CACHE_BYTES_US[artifact.kernel.split("_")[1]]
    if "BLOCK_H" not in artifact.tile:
        return Prepared(m, n, gemm.resident(artifact), tap_us)
    lane = artifact.tile["BLOCK_H"], artifact.tile["BLOCK_V"]
    # An input is read once for all the outputs of a lane that it meets: a third of the reads, and the products remain.
    return Prepared(m, n, gemm.resident(artifact), tap_us * lane[0] * lane[1] / 3, lane)


def tiles(prepared: Prepared, shape: Shape) -> dict[str, int]:
    """Tiles each way, by the names of the kernels' arguments."""
    columns = -(-shape.channels // prepared.n)
    if prepared.lane is None:
        return {"tiles_m": -(-shape.pixels // prepared.m), "tiles_n": columns}
    height, width = prepared.lane
    return {"tiles_h": -(-shape.rows // height), "tiles_v": -(-shape.columns // (width * prepared.m)), "tiles_n": columns}


def programs(prepared: Prepared, shape: Shape) -> int:
    """Size of the flat grid: tiles of each phase, or of each image."""
    return prod(tiles(prepared, shape).values()) * (shape.phases if prepared.lane is None else shape.images)


def estimate_us(prepared: Prepared, shape: Shape, multiprocessors: int) -> float:
    """Microseconds, for ranking."""
    count = programs(prepared, shape)
    together = min(prepared.resident, -(-count // multiprocessors))
    waves = -(-count // (together * multiprocessors))
    tap_us = max(together * prepared.tap_us, TAP_US)
    return gemm.LAUNCH_US + max(waves * (gemm.PROGRAM_US + shape.taps * tap_us), shape.bytes / gemm.MEMORY_BYTES_US)


def launch(artifact: Artifact, problem: Problem, handle: int, slots: dict[str, int]):
    """(steps, workspace bytes, zeroed bytes)."""
    shape, prepared = shape_of(problem), prepare(artifact)
    values = {**problem.values, **tiles(prepared, shape)}
    return [kernel_step(artifact, handle, programs(prepared, shape), values, slots)], 0, 0
