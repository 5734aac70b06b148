"""The documentation of what is covered, in words, from the very constraints that dispatch checks."""

from aotconv.geometry import LIMIT
from gen.matrix import Entry, Matrix
from gen.structure import constraints
from gen.variants import Kernel

TITLES = {
    "fwd": "Forward (and the input gradient of a transposed convolution)",
    "bwd_input": "Gradient of the input (and transposed convolution)",
    "bwd_weight": "Gradient of the weight",
}
SIZE_LIMITS = ("extent", "pixels", "reduction", "reach")  # suffixes of what 32-bit indices bound


def coverage(matrix: Matrix) -> dict:
    """What templates/coverage.md.j2 needs."""
    rows = {op: [] for op in TITLES}
    for kernel, entry in sorted(matrix.kernels.items()):
        dtypes = ", ".join(dtype for dtype, configs in entry.ship if configs)
        rows[kernel.op].append((kernel.name, dtypes, asks(kernel, entry)))
    return {"titles": TITLES, "rows": rows, "limit": LIMIT}


def asks(kernel: Kernel, entry: Entry) -> str:
    """A kernel's demands in one line."""
    parts = [f"vectors of {', '.join(entry.vector)}"] if entry.vector else []
    parts += [f"channels of {tensor} adjacent" for tensor in entry.unit]
    rest = [row for row in constraints(kernel, entry) if not row[0].endswith("_c")]
    parts += [f"{name} {relation} {bound}" for name, relation, bound in rest if not name.endswith(SIZE_LIMITS)]
    if any(name.endswith(SIZE_LIMITS) for name, _, _ in rest):
        parts.append("offsets within 32 bits")
    targets = list(entry.targets)
    if targets:
        parts.append(f"on {', '.join(targets)} alone")
    return "; ".join(parts) or "nothing"
