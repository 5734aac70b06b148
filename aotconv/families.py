"""Which module knows how to size, cost and launch a kernel: by the op and the structure tag in the kernel's name.

A family has `shape_of(problem)` and `prepare(artifact)`, each worked out once; from the two `programs(prepared, shape)`
and `estimate_us(prepared, shape, multiprocessors)`; and `launch(artifact, problem, handle, slots)`, which gives (steps,
workspace bytes, zeroed bytes) for a plan. Standard library only.
"""

from aotconv import depthwise, gemm, hopper, weight

FAMILIES = {"cl": gemm, "clodd": gemm, "flat": gemm, "any": gemm, "dw": depthwise, "dwt": depthwise, "dwany": depthwise}
FAMILIES |= {name: hopper for name in ("pipe", "coop", "pp", "pipet", "coopt", "ppt", "pps")}
SIZED = (hopper,)  # families whose `launch` takes the number of multiprocessors


def launch(artifact, problem, handle: int, slots: dict[str, int], multiprocessors: int):
    """A plan's steps and workspace, from the artifact's family; some size their grid by the device."""
    kind = family(artifact.kernel)
    sized = {"multiprocessors": multiprocessors} if kind in SIZED else {}
    return kind.launch(artifact, problem, handle, slots, **sized)


def trials(artifact) -> tuple[dict, ...]:
    """Arguments of `launch` that admission tries besides none: grids of few programs, splits."""
    kind = family(artifact.kernel)
    return kind.trials(artifact) if hasattr(kind, "trials") else ()


def family(kernel: str):
    """The family of a kernel's name, such as fwd2d_cl_k3."""
    return weight if kernel.startswith("bwdw") else FAMILIES[kernel.split("_")[1]]
