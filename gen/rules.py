"""Candidates -> variants: why a candidate is not built. A rule returns its reason, or None; nothing is dropped without one.

Some reasons hold for one target only. Only what is certain before compiling is rejected here. What the compiled binary shows (its shared memory, its spills)
is judged by gen/compile.py, for each target.
"""

from aotconv.problem import ITEMSIZE
from aotconv.target import Target
from gen.candidates import SEED_TILE, candidates
from gen.matrix import Matrix, MatrixError
from gen.variants import Variant

REGISTERS = 255                                          # that one thread can name, on every target
TF32_HIP = ("gfx942",)                                   # Triton 3.8 on HIP; older and newer chips have none
REGISTERS_LETTER = "r"                                   # the tile's only letter that is no side of it
UNROLLED = "hv"                                          # rows and columns a lane keeps: written out, no tl.arange
DOT_MIN_K = {"f16": 16, "bf16": 16, "f32": 8, "tf32": 8}  # Triton 3.8's tl.dot


def no_power_of_2(v: Variant, matrix: Matrix) -> str | None:
    sides = [(letter, size) for letter, size in v.config.tile if letter not in (REGISTERS_LETTER, *UNROLLED)]
    odd = [f"{letter}{size}" for letter, size in sides if size & (size - 1) or not size]
    return f"tile {odd[0]} is no power of 2, which tl.arange needs" if odd else None


def below_dot(v: Variant, matrix: Matrix) -> str | None:
    k, least = dict(v.config.tile).get("k"), DOT_MIN_K[v.dtype]
    return f"BLOCK_K {k} < {least}, the least that tl.dot takes for {v.dtype}" if k is not None and k < least else None


def ieee_8_warps(v: Variant, matrix: Matrix) -> str | None:
    if v.dtype != "f32" or v.config.warps < 8 or v.kernel.pin == 1:
        return None
    return f"IEEE f32 with {v.config.warps} warps and more than one tap: wrong results (pytorch#173068)"


def too_many_accumulators(v: Variant, matrix: Matrix) -> str | None:
    tile = dict(v.config.tile)
    each = tile.get("m", 1) * tile.get("n", 1) // (32 * v.config.warps)
    return f"{each} accumulators a thread > {REGISTERS} registers" if each > REGISTERS else None


def too_much_shared(v: Variant, matrix: Matrix) -> str | None:
    if any(shared_floor(v, target, matrix) <= target.shared_limit and is_for(v, target, matrix) for target in matrix.targets):
        return None
    roomy = max((t for t in matrix.targets if is_for(v, t, matrix)), key=lambda target: target.shared_limit, default=None)
    if roomy is None:
        return None
    least = shared_floor(v, roomy, matrix)
    return f"at least {least} bytes of shared memory > {roomy.shared_limit} ({roomy.name}, the largest)"


def is_for(v: Variant, target: Target, matrix: Matrix) -> bool:
    return v.kernel not in matrix.kernels or not reject_for(v, target, matrix)


def shared_floor(v: Variant, target, matrix: Matrix) -> int:
    """The least shared memory a pipelined dot may take: some targets keep one buffer fewer than there are stages."""
    if tuple(letter for letter, _ in v.config.tile) != SEED_TILE:
        return 0
    stages = v.config.stages if target.backend == "cuda" else matrix.options.get("hip", {}).get("stages", v.config.stages)
    size = ITEMSIZE["f32" if v.dtype == "tf32" else v.dtype]
    return size * v.config["k"] * (v.config["m"] + v.config["n"]) * max(stages - 1, 1)


def not_its_target(v: Variant, target: Target, matrix: Matrix) -> str | None:
    targets = matrix.kernels[v.kernel].targets
    if not targets or target.name in targets:
        return None
    return f"not for {target.name}: the matrix has it for {', '.join(targets)} alone"


def no_tf32(v: Variant, target: Target, matrix: Matrix) -> str | None:
    if v.dtype != "tf32" or target.backend == "cuda" or target.name in TF32_HIP:
        return None
    return f"not for {target.name}: it has no TF32 arithmetic, f32 serves there"


RULES = (no_power_of_2, below_dot, ieee_8_warps, too_many_accumulators, too_much_shared)
TARGET_RULES = (not_its_target, no_tf32)


def reject(v: Variant, matrix: Matrix) -> str | None:
    """The first rule's reason against `v`; None when it could be built."""
    return next((reason for rule in RULES if (reason := rule(v, matrix))), None)


def reject_for(v: Variant, target: Target, matrix: Matrix) -> str | None:
    """Why a shipped variant is not built for one target; None when it is."""
    return next((reason for rule in TARGET_RULES if (reason := rule(v, target, matrix))), None)


def variants_for(matrix: Matrix, target: Target) -> tuple[Variant, ...]:
    """What is built for one target, in the matrix's order."""
    return tuple(v for entry in matrix.entries for v in entry.variants if not reject_for(v, target, matrix))


def select(matrix: Matrix) -> tuple[tuple[Variant, ...], tuple[tuple[Variant, str], ...]]:
    """(variants to build in the matrix's order, rejected candidates with their reasons)."""
    shipped = tuple(v for entry in matrix.entries for v in entry.variants)
    for v in shipped:
        if reason := reject(v, matrix):
            raise MatrixError(f"{matrix.path}: {v.name} is shipped but rejected: {reason}; take it out of ship")
    known = set(shipped)
    others = [v for v in candidates(matrix) if v not in known]
    return shipped, tuple((v, reject(v, matrix) or not_shipped(v)) for v in others)


def not_shipped(v: Variant) -> str:
    return f"not shipped: the curated list of {v.kernel.name} has no {v.config.name} for {v.dtype}"
