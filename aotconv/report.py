"""What would serve a call and why; what is installed; whether it is sound. Imports torch."""

import base64
import hashlib
import importlib.metadata
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aotconv import geometry
from aotconv.pack import Pack, PackError
from aotconv.target import Target

CODES = {torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}  # c10::ScalarType
KINDS = {"fwd": geometry.FWD, "bwd_input": geometry.BWD_INPUT, "bwd_weight": geometry.BWD_WEIGHT}


@dataclass(frozen=True)
class Explanation:
    """tier: tuned, rule, generic or aten. reasons: (tier, sentence) for each tier up to the one that answers."""

    tier: str
    variant: str | None
    target: str | None
    admitted: bool
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Info:
    """version of the wheel; targets it was built for; device: target of the current device, None without a GPU;
    packs and admitted: number of artifacts by target; mode: AOTCONV_MODE."""

    version: str
    targets: tuple[str, ...]
    device: str | None
    packs: dict
    admitted: dict
    mode: str


def explain(x, w, bias=None, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1, *, op="fwd"):
    """Which tier and variant serve this call, and why the tiers before did not. Arguments as aten.convolution's; for
    `bwd_input` and `bwd_weight`, x and w are those of the forward call."""
    from aotconv.operators import flags_of, runtime
    from aotconv.ops import _spread

    answer = lambda reason: Explanation("aten", None, None, False, (("aten", reason),))
    if op not in KINDS:
        raise ValueError(f"op is {op!r}, expected one of {', '.join(KINDS)}")
    if runtime.mode == "off":
        return answer("AOTCONV_MODE=off")
    if not torch.backends.cudnn.enabled and runtime.mode != "strict":
        return answer("torch.backends.cudnn.enabled is False, and aten lays its results out in another way without it")
    for name, tensor in (("input", x), ("weight", w), ("bias", bias)):
        if tensor is not None and (not tensor.is_cuda or tensor.device != x.device):
            return answer(f"the {name} is on {tensor.device}, kernels run on one GPU")
        if tensor is not None and tensor.dtype not in CODES:
            return answer(f"the {name} is {tensor.dtype}, kernels take float16, bfloat16 and float32")
    if runtime.start() is None:
        return answer(runtime.failed)
    rank = w.dim() - 2
    x = x.unsqueeze(0) if x.dim() == rank + 1 else x
    lists = [_spread(v, rank) for v in (stride, padding, dilation, output_padding)]
    words = geometry.pack_words(KINDS[op], *lists[:3], transposed, lists[3], groups, flags_of(x))
    if words is None:
        return answer("a stride, padding, dilation or groups is negative, zero or over a million")
    index = x.device.index
    try:
        problem = geometry.problem_of(call_of(words, index, op, x, w, bias))
    except geometry.Uncovered as reason:
        return answer(str(reason))
    choice, library = runtime.choose(index, problem), runtime.library(index)
    target = library.pack.target if library else None
    if choice.artifact is None:
        return Explanation("aten", None, target, False, choice.reasons)
    return Explanation(choice.tier, choice.artifact.variant, target, library.is_admitted(choice.artifact), choice.reasons)


def call_of(words, index: int, op: str, x, w, bias) -> geometry.Call:
    """The Call that the native operator would be asked for."""
    call = geometry.read_key([*words, index, 0])
    tensors = {"fwd": (x, w, bias), "bwd_input": (None, w, x), "bwd_weight": (None, x, w)}[op]
    layouts, codes = zip(*((None, None) if t is None else layout_of(t) for t in tensors))
    call = replace(call, tensors=layouts, dtypes=codes)
    if op == "fwd":
        return call
    forward = replace(call, kind=geometry.FWD)
    source, weight = layout_of(x)[0], layout_of(w)[0]
    last = geometry.result_is_channels_last(source, weight)
    grad = geometry.result_layout(geometry.forward_sizes(forward, source, weight), last)
    return replace(call, tensors=(grad, *layouts[1:]), dtypes=(codes[1], *codes[1:]))


def layout_of(tensor):
    """(Layout, scalar-type code) of a tensor, as the native key has them."""
    code = CODES.get(tensor.dtype, -1)
    address = tensor.data_ptr()
    align = min(address & -address, 16) if address else 16
    return geometry.Layout(tuple(tensor.shape), tuple(tensor.stride()), align), code


def info() -> Info:
    """What is installed, and how much of it is admitted."""
    from aotconv.operators import runtime

    try:
        number = importlib.metadata.version("aotconv")
    except importlib.metadata.PackageNotFoundError:
        number = "not installed"
    try:
        targets = runtime.dispatch().TARGETS
    except (ImportError, PackError):
        targets = ()
    packs, admitted = {}, {}
    for target in targets:
        try:
            artifacts = runtime.pack(target).artifacts
            table = runtime.table(target)["admitted"]
        except PackError:
            continue
        packs[target] = len(artifacts)
        admitted[target] = sum(table.get(a.variant) == a.sha256 for a in artifacts)
    device = None
    if torch.cuda.is_available() and runtime.start():
        library = runtime.library(torch.cuda.current_device())
        device = library.pack.target if library else None
    return Info(number, targets, device, packs, admitted, runtime.mode)


def verify() -> list[str]:
    """Faults of the installed packs and tables, a sentence each; empty when all is sound. Reads every byte."""
    from aotconv.operators import runtime

    faults = record_faults(runtime.folder)
    try:
        targets = runtime.dispatch().TARGETS
    except (ImportError, PackError) as error:
        return [f"the dispatch module cannot be used ({error}); build it with python -m gen build, or reinstall the wheel"]
    for target in targets:
        try:
            faults += target_faults(runtime, Target.parse(target).name)
        except (PackError, OSError) as error:
            faults.append(str(error))
    if not (runtime.folder / "launcher.so").exists():
        faults.append(f"{runtime.folder / 'launcher.so'} is missing; reinstall the wheel")
    return faults


def target_faults(runtime, target: str) -> list[str]:
    """Faults of one target's pack and table; a wheel need not have either."""
    path, table = runtime.folder / "packs" / f"{target}.pack", runtime.folder / "tables" / f"{target}.json"
    if not path.exists():
        return [f"{table} has no {path} beside it; reinstall the wheel"] if table.exists() else []
    pack = Pack(path)
    found = [] if pack.target == target else [f"{path} holds binaries for {pack.target}; reinstall the wheel"]
    packed = {a.variant: a.sha256 for a in pack.artifacts}
    found += [f"{table} admits {variant} with bytes that the pack does not hold; reinstall the wheel"
              for variant, digest in runtime.table(target)["admitted"].items() if packed.get(variant) != digest]
    return found + pack.faults()


def record_faults(folder: Path) -> list[str]:
    """Installed files below `folder` that are missing or differ from the wheel's RECORD; a source tree has none."""
    try:
        files = importlib.metadata.files("aotconv") or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    faults = []
    for file in files:
        path = Path(file.locate()).resolve()
        if file.hash is None or folder.resolve() not in path.parents:
            continue
        if not path.exists():
            faults.append(f"{path} is missing; reinstall the wheel")
        elif base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode() != file.hash.value:
            faults.append(f"{path} is not the file that the wheel installed; reinstall the wheel")
    return faults


def preload(device=None) -> int:
    """Load every usable kernel of a device (an index, a torch.device; the current one by default), so that no later
    call loads one: needed before a CUDA graph is captured. Returns how many are loaded."""
    from aotconv.operators import runtime

    device = torch.device("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)
    if device.type != "cuda":
        raise ValueError(f"the device is {device}, expected a GPU: cuda, cuda:1, or an index")
    if not torch.cuda.is_available():
        return 0
    return runtime.preload(torch.cuda.current_device() if device.index is None else device.index)
