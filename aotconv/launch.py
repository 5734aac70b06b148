"""An artifact and a problem -> the words of a plan, as the native launcher reads them. Standard library only.

The words: magic, the result's dtype, dimensions, sizes and strides, workspace bytes, bytes of it to zero, the number
of steps; then for each step the kernel's handle, grid, threads, shared bytes, cluster size, the number of parameters
and (kind, value) pairs. csrc/plan.h is the other side.
"""

from aotconv.cost import GemmShape
from aotconv.pack import Artifact
from aotconv.problem import Layout, Problem

MAGIC = 0x41435031
KIND_I32, KIND_I64, KIND_NULL = 5, 6, 8
INTEGER_KINDS = {"i32": KIND_I32, "i64": KIND_I64}


def result_of(problem: Problem) -> Layout:
    """The tensor that is computed."""
    return {"fwd": problem.y, "bwd_input": problem.x, "bwd_weight": problem.w}[problem.op]


def plan_words(problem: Problem, dtype_code: int, slots: dict[str, int], steps: list[list[int]], workspace=0, zeroed=0):
    """The whole plan."""
    result = result_of(problem)
    head = [MAGIC, dtype_code, len(result.sizes), *result.sizes, *result.strides, workspace, zeroed, len(steps)]
    return head + [word for step in steps for word in step]


def gemm_step(problem: Problem, artifact: Artifact, handle: int, slots: dict[str, int]) -> list[int]:
    """The step of an implicit-GEMM kernel: one program for each tile of rows x columns of each group."""
    shape = GemmShape(problem.op, problem.values)
    tiles_m = -(-shape.rows // artifact.tile["BLOCK_M"])
    tiles_n = -(-shape.columns // artifact.tile["BLOCK_N"])
    values = {**problem.values, "tiles_m": tiles_m, "tiles_n": tiles_n}
    return kernel_step(artifact, handle, (tiles_m * tiles_n * shape.groups, 1, 1), values, slots)


def kernel_step(artifact: Artifact, handle: int, grid, values: dict, slots: dict[str, int]) -> list[int]:
    """One launch. A pointer that the call does not have (no bias) is null."""
    parameters = []
    for argument in artifact.arguments:
        if argument.kind == "ptr":
            slot = slots.get(argument.name.removesuffix("_ptr"))
            parameters += (KIND_NULL, 0) if slot is None else (slot, 0)
        elif argument.kind == "scratch":
            parameters += (KIND_NULL, 0)
        else:
            parameters += (INTEGER_KINDS[argument.kind], values[argument.name])
    return [handle, *grid, artifact.threads, artifact.shared, artifact.cluster, len(artifact.arguments), *parameters]
