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
# Counts that a vector of a tensor's channels must divide; a kernel takes those that it needs.
CHANNELS = {"x": ("C_in", "channels"), "w": ("C_in",), "y": ("C_out", "channels")}
WORKSPACE_POINTERS = {"count_ptr": "*i32", "partial_ptr": "*fp32"}


def constraints(kernel: Kernel, entry: Entry) -> list[tuple]:
    """What a problem must satisfy before `kernel` may serve it, besides the divisibility of its arguments."""
    rows = [(name, "==", value) for name, value in kernel.pins.items()]
    rows += entry.requires
    rows += map_constraints(kernel, entry) if entry.maps else []
    rows += [(f"{tensor}_c", "==", 1) for tensor in dict.fromkeys(entry.vector + entry.unit)]
    if kernel.index == "i32":
        rows += [(f"{tensor}_extent", "<=", INT32_MAX - INDEX_HEADROOM) for tensor in "xwy"]
        rows += [(name, "<=", INT32_MAX - INDEX_HEADROOM) for name in ("pixels", "reduction", "reach")]
    return rows


def map_constraints(kernel: Kernel, entry: Entry) -> list[tuple]:
    """What tensor maps can say: 16-byte strides (for 4-byte types this asks for 32), a window's place and span in 16 bits
    that its dimensions share. The gradient of the input gathers y, and is for stride 1 alone."""
    backward = kernel.op == "bwd_input"
    read, made = "yx" if backward else "xy"
    rows = [("groups", "==", 1), (f"{read}_apart", ">=", 1), ("w_apart", ">=", 1), ("w_pitch", ">=", 0), (f"{made}_pitch", ">=", 0)]
    rows += [(f"{tensor}_c", "==", 1) for tensor in "xwy"]
    rows += [(f"{tensor}_align", "a multiple of", VECTOR_BYTES) for tensor in "xwy"]
    strides = ["w_o", "w_pitch", f"{made}_pitch"]
    if entry.maps == "tiled":
        rows += [("taps", "==", 1), ("stride", "==", 1), ("pad", "==", 0), (f"{read}_pitch", ">=", 0)]
        rows += [("corner", "==", 1)] if backward else []  # a transposed call may ask for more pixels than it reads
        strides += [f"{read}_pitch"]
    else:
        bits = 16 // kernel.rank
        rows += [("stride", "==", 1)] if backward else [("stride", "<=", 8)]
        rows += [("corner", "<=", 2 ** (bits - 1)), ("span", "<=", min(2**bits, 2**15) - 1)]
        strides += [f"{read}_{name}" for name in ("n", *kernel.dims)]
    return rows + [(name, "a multiple of", VECTOR_BYTES // 2) for name in strides]


def aligned(entry: Entry) -> list[str]:
    """Names of the run-time arguments that are promised to be multiples of a vector (addresses: of 16 bytes)."""
    names = []
    for tensor in entry.vector:
        names += [f"{tensor}_ptr", f"{tensor}_*", *CHANNELS[tensor]]
    return sorted(dict.fromkeys(names))


def argument(name: str, index: str, promised: tuple[str, ...], dtype: str) -> Argument:
    """Kind and promised divisibility of the run-time argument `name`; `promised` is what the source lists."""
    held = any(fnmatch(name, pattern) for pattern in promised)
    if name in WORKSPACE_POINTERS:
        return Argument(name, "ptr", VECTOR_BYTES)
    if name.endswith("_ptr"):
        return Argument(name, "ptr", VECTOR_BYTES if held else 1)
    vector = VECTOR_BYTES // ITEMSIZE["f32" if dtype == "tf32" else dtype]
    return Argument(name, index, vector if held else 1)
