"""What a kernel's structure means for its arguments: hints promised to the compiler, constraints put on the problem.

Both are plain data. A constraint is (name, relation, value): `values[name]` must be `in`, `<=` or `==` the value.
"""

from fnmatch import fnmatch

from aotconv.pack import Argument
from aotconv.problem import ITEMSIZE
from gen.matrix import Entry
from gen.variants import Kernel

INT32_MAX = 2**31 - 1
# The largest tile and the largest window may be added to an index before it is compared.
INDEX_HEADROOM = 2**16
VECTOR_BYTES = 16
CHANNELS = {"x": "C_in", "w": "C_in", "y": "C_out"}


def constraints(kernel: Kernel, entry: Entry) -> list[tuple]:
    """What a problem must satisfy before `kernel` may serve it, besides the divisibility of its arguments."""
    rows = [(name, "==", value) for name, value in kernel.pins.items()]
    rows += [(f"{tensor}_c", "in", (0, 1)) for tensor in dict.fromkeys(entry.vector + entry.unit)]
    if kernel.index == "i32":
        rows += [(f"{tensor}_extent", "<=", INT32_MAX - INDEX_HEADROOM) for tensor in "xwy"]
        rows += [(name, "<=", INT32_MAX - INDEX_HEADROOM) for name in ("pixels", "reduction", "reach")]
    return rows


def aligned(entry: Entry) -> list[str]:
    """Names of the run-time arguments that are promised to be multiples of a vector (addresses: of 16 bytes)."""
    names = []
    for tensor in entry.vector:
        names += [f"{tensor}_ptr", f"{tensor}_*", CHANNELS[tensor]]
    return sorted(dict.fromkeys(names))


def argument(name: str, index: str, promised: tuple[str, ...], dtype: str) -> Argument:
    """Kind and promised divisibility of the run-time argument `name`; `promised` is what the source lists."""
    held = any(fnmatch(name, pattern) for pattern in promised)
    if name.endswith("_ptr"):
        return Argument(name, "ptr", VECTOR_BYTES if held else 1)
    vector = VECTOR_BYTES // ITEMSIZE["f32" if dtype == "tf32" else dtype]
    return Argument(name, index, vector if held else 1)
