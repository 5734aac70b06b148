"""What a variant is expected to take on a problem. Standard library only.

A model of waves: programs fill the device `resident` at a time; each takes a fixed time and a time for each step of its
reduction, in which matrix work, shared-memory traffic and latency overlap; device memory bounds the whole. The
numbers are for one multiprocessor of an H200 and rank variants of one target; they are no predictions.
"""

from math import ceil

from aotconv.pack import Artifact

REGISTERS, SHARED, THREADS = 65_536, 233_472, 2_048  # of one multiprocessor
LAUNCH_US, PROGRAM_US, STEP_US = 2.0, 1.2, 0.25
MEMORY_BYTES_US = 4.0e6
LOAD_BYTES_US = 60_000          # what one multiprocessor brings into shared memory
MATRIX_FLOPS_US = {"f16": 4.5e6, "bf16": 4.5e6, "tf32": 2.2e6, "f32": 0.25e6}
GATHER = {"cl": 1.0, "clodd": 1.2, "flat": 6.0, "any": 8.0}  # cost of an element read, relative to 16-byte vectors


def resident(artifact: Artifact) -> int:
    """Programs of this artifact that fit one multiprocessor."""
    by_registers = REGISTERS // max(artifact.registers * artifact.threads, 1)
    by_shared = SHARED // (artifact.shared + 2048)
    return max(min(by_registers, by_shared, THREADS // artifact.threads), 1)


def estimate_us(artifact: Artifact, layout: str, values: dict, shape: "GemmShape", multiprocessors: int, byte_count: int) -> float:
    """Microseconds, for ranking."""
    tile = artifact.tile
    m, n, k = tile["BLOCK_M"], tile["BLOCK_N"], tile["BLOCK_K"]
    programs = ceil(shape.rows / m) * ceil(shape.columns / n) * shape.groups
    together = min(resident(artifact), ceil(programs / multiprocessors))
    waves = ceil(programs / (together * multiprocessors))
    work = 2 * m * n * k / MATRIX_FLOPS_US[artifact.dtype]
    load = (m * GATHER[layout] + n) * k * values["itemsize"] / LOAD_BYTES_US
    step = max(together * max(work, load), STEP_US)
    return LAUNCH_US + max(waves * (PROGRAM_US + shape.steps(layout, k) * step), byte_count / MEMORY_BYTES_US)


class GemmShape:
    """The matrix product behind a problem: rows (pixels), columns (channels) and reduction, for each group."""

    def __init__(self, op: str, values: dict):
        self.groups = values["groups"]
        self.rows = values["pixels"]
        self.columns, self.channels = values["C_out"], values["C_in"]
        if op == "bwd_input":
            self.columns, self.channels = self.channels, self.columns
        self.taps = values["taps"]

    def steps(self, layout: str, block_k: int) -> int:
        """Iterations of the main loop: whole blocks of channels for each tap, or one axis of taps and channels."""
        if layout.startswith("cl"):
            return self.taps * ceil(self.channels / block_k)
        return ceil(self.taps * self.channels / block_k)
