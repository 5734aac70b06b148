"""A runtime with no GPU: a small wheel's folder on disk, a stub of the native launcher, a device that is only a value."""

import hashlib
import json
from pathlib import Path

from aotconv import geometry
from aotconv.pack import Argument, Artifact, write_pack
from aotconv.problem import channels_last, contiguous
from aotconv.runtime import Runtime
from aotconv.target import Device

H200 = Device("cuda", (9, 0), "", 132, 232_448)
FWD = (1, 1), (1, 1), (1, 1), False, (0, 0), 1  # stride, padding, dilation, transposed, output padding, groups
VECTOR = tuple(Argument(name, "ptr", 16) for name in ("x_ptr", "w_ptr", "y_ptr")) + (Argument("C_in", "i32", 8), Argument("x_w", "i32", 8))
PLAIN = (Argument("x_ptr", "ptr"), Argument("w_ptr", "ptr"), Argument("y_ptr", "ptr"), Argument("x_w", "i32"))
WIDE = (Argument("x_ptr", "ptr"), Argument("w_ptr", "ptr"), Argument("y_ptr", "ptr"), Argument("x_w", "i64"))
DISPATCH = '''
FORMAT = 1
TARGETS = ("sm_80", "sm_90a")
KERNELS = {
    "fwd2d_cl": ("fwd", 2, (("x_c", "==", 1), ("w_c", "==", 1), ("y_c", "==", 1), ("x_extent", "<=", 2147418111))),
    "fwd2d_any": ("fwd", 2, (("x_extent", "<=", 2147418111), ("w_extent", "<=", 2147418111))),
    "fwd2d_any_i64": ("fwd", 2, ()),
}
'''


def artifact(kernel="fwd2d_cl", dtype="bf16", tile=(64, 64, 32), shared=16_384, arguments=None):
    """(Artifact, bytes): its bytes are its name."""
    m, n, k = tile
    name = f"{kernel}-{dtype}-m{m}n{n}k{k}w4s2"
    arguments = arguments or (VECTOR if kernel == "fwd2d_cl" else WIDE if kernel.endswith("_i64") else PLAIN)
    tiles = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    data = name.encode() * 9
    digest = hashlib.sha256(data).hexdigest()
    return Artifact(name, kernel, dtype, tiles, "symbol", 4, 128, shared, 1, 0, 64, 0, arguments, digest), data


ARTIFACTS = (artifact(), artifact(tile=(128, 128, 64), shared=98_304), artifact("fwd2d_any"), artifact("fwd2d_any_i64"))


class Stub:
    """What the runtime asks of the launcher; remembers what was loaded."""

    def __init__(self, driver=13_000, fails=None):
        self.driver, self.fails, self.loaded = driver, fails, []

    def driver_version(self):
        return self.driver

    def load_kernel(self, device, data, symbol, shared):
        if self.fails:
            raise RuntimeError(self.fails)
        self.loaded.append(bytes(data))
        return len(self.loaded)


def make_folder(folder: Path, artifacts=ARTIFACTS, target="sm_90a", header=None, admitted=None) -> Path:
    """Dispatch module, pack and table; `admitted` is all of them by default."""
    (folder / "packs").mkdir(parents=True)
    (folder / "tables").mkdir()
    (folder / "dispatch.py").write_text(DISPATCH)
    (folder / "packs" / f"{target}.pack").write_bytes(write_pack(folder, header or {"target": target, "format": 1}, artifacts))
    names = {a.variant: a.sha256 for a, _ in artifacts} if admitted is None else admitted
    (folder / "tables" / f"{target}.json").write_text(json.dumps({"format": 1, "target": target, "admitted": names}))
    return folder


def make_runtime(folder: Path, device=H200, native=None, mode="fallback") -> Runtime:
    runtime = Runtime(folder, mode)
    runtime.native, runtime.device = native or Stub(), lambda index: device
    return runtime


def key(x=(2, 16, 9, 9), w=(16, 16, 3, 3), x_strides=None, w_strides=None, last=True, dtype=15, align=16, lists=FWD, bias=None,
        device=0, flags=0):
    """The words of a forward call, as the native operator hands them to the planner."""
    layout = channels_last if last else contiguous
    words = [*geometry.pack_words(geometry.FWD, *lists, flags), device, 3 if bias is None else 7]
    tensors = [(x, x_strides or layout(x).strides), (w, w_strides or layout(w).strides)]
    tensors += [] if bias is None else [((bias,), (1,))]
    for sizes, strides in tensors:
        words += [dtype, len(sizes), align, *sizes, *strides]
    return words
