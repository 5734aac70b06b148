"""The words of a plan, as the native launcher reads them. Standard library only.

Magic, the result's dtype, dimensions, sizes and strides, workspace bytes, bytes of it to zero, the number of steps;
then for each step the kernel's handle, grid, threads, shared bytes, cluster size, the number of parameters and their
(kind, value) pairs. csrc/plan.h is the other side.
"""

from aotconv.pack import Artifact
from aotconv.problem import Layout, Problem

MAGIC = 0x41435031
A, B, C, RESULT, WORKSPACE = range(5)  # parameter kinds that are pointers: the slots of the native operator
KIND_I32, KIND_I64, KIND_F32, KIND_NULL, KIND_TENSOR_MAP = 5, 6, 7, 8, 9
INTEGER_KINDS = {"i32": KIND_I32, "i64": KIND_I64}
WORKSPACE_POINTERS = ("count_ptr", "partial_ptr")  # our own memory, aligned as promised whatever the tensors are
UNREAD = {"unread32": KIND_I32, "unread64": KIND_I64}


def result_of(problem: Problem) -> Layout:
    """The tensor that is computed."""
    return {"fwd": problem.y, "bwd_input": problem.x, "bwd_weight": problem.w}[problem.op]


def plan_words(problem: Problem, dtype_code: int, steps: list[list[int]], workspace: int = 0, zeroed: int = 0) -> list[int]:
    """The whole plan. `workspace` bytes live as long as the call; the first `zeroed` of them are zero before the steps."""
    result = result_of(problem)
    head = [MAGIC, dtype_code, len(result.sizes), *result.sizes, *result.strides, workspace, zeroed, len(steps)]
    return head + [word for step in steps for word in step]


def kernel_step(artifact: Artifact, handle: int, grid: int, values: dict, slots: dict, workspace: dict | None = None,
                maps: dict | None = None) -> list[int]:
    """One launch of `grid` programs.

    slots: tensor -> slot; a pointer that the call does not have (no bias) is null. workspace: pointer -> byte offset.
    maps: tensor map -> the words of its recipe. A map's own sizes and strides are parameters that no kernel reads.
    """
    parameters = []
    for argument in artifact.arguments:
        if argument.kind == "ptr":
            name = argument.name.removesuffix("_ptr")
            if workspace and name in workspace:
                parameters += (WORKSPACE, workspace[name])
            else:
                parameters += (slots[name], 0) if name in slots else (KIND_NULL, 0)
        elif argument.kind == "scratch":
            parameters += (KIND_NULL, 0)
        elif argument.kind in UNREAD:
            parameters += (UNREAD[argument.kind], 0)
        elif maps and argument.name in maps:
            parameters += (KIND_TENSOR_MAP, len(maps[argument.name]), *maps[argument.name])
        else:
            parameters += (INTEGER_KINDS[argument.kind], values[argument.name])
    return [handle, grid, 1, 1, artifact.threads, artifact.shared, artifact.cluster, len(artifact.arguments), *parameters]
