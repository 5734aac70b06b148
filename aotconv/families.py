"""Which module knows how to size, cost and launch a kernel: by the structure tag in the kernel's name.

A family has `shape_of(problem)` and `prepare(artifact)`, each worked out once; from the two `programs(prepared, shape)`
and `estimate_us(prepared, shape, multiprocessors)`; and `launch(artifact, problem, handle, slots)`, which gives (steps,
workspace bytes, zeroed bytes) for a plan. Standard library only.
"""

from aotconv import gemm

FAMILIES = {"cl": gemm, "clodd": gemm, "flat": gemm, "any": gemm}


def family(kernel: str):
    """The family of a kernel's name, such as fwd2d_cl_k3."""
    return FAMILIES[kernel.split("_")[1]]
