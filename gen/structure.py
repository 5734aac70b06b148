"""What a kernel's structure means for its arguments: hints promised to the compiler, constraints put on the problem.

Both are plain data. A constraint is (name, relation, value): `values[name]` must be `in`, `<=` or `==` the value.
"""

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


def argument(name: str, kernel: Kernel, entry: Entry, dtype: str) -> Argument:
    """The kind and the promised divisibility of the run-time argument `name`."""
    tensor = name.split("_")[0]
    if name.endswith("_ptr"):
        return Argument(name, "ptr", VECTOR_BYTES if tensor in entry.vector else 1)
    vector = VECTOR_BYTES // ITEMSIZE["f32" if dtype == "tf32" else dtype]
    stepped = tensor in entry.vector or name in {CHANNELS[t] for t in entry.vector}
    return Argument(name, kernel.index, vector if stepped else 1)
