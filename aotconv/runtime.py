"""The process's state: native launcher, packs, tables and one library for each device. Imports torch.

Everything is found at the first call on a GPU; importing this opens nothing. What goes wrong is said once, in one
sentence, and aten serves.
"""

import importlib
import importlib.util
import json
import os
import threading
import warnings
from pathlib import Path

import torch

from aotconv import geometry
from aotconv.families import launch
from aotconv.pack import Pack, PackError
from aotconv.plan import plan_words
from aotconv.select import Choice, Library
from aotconv.target import Device, Target, best_target

FOLDER = Path(__file__).parent / "generated"
MODES = ("fallback", "strict", "off")
TABLE_FORMAT = 1
DISPATCH_FORMAT = 1
ATEN, ATEN_ONCE = None, False  # the planner's words for: aten from now on; aten this time, ask again
SHARED_OPTIN = 97              # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN


class AotconvWarning(UserWarning):
    """aotconv works less well than it could: the text says why and what to do. aten serves."""


class AotconvError(RuntimeError):
    """AOTCONV_MODE=strict, and no kernel serves the call."""


def read_mode() -> str:
    """AOTCONV_MODE, checked."""
    mode = os.environ.get("AOTCONV_MODE", "fallback")
    if mode not in MODES:
        raise ValueError(f"AOTCONV_MODE={mode!r}, expected one of {', '.join(MODES)}")
    return mode


def module_at(path: Path):
    """A module from its file, under no public name."""
    spec = importlib.util.spec_from_file_location("aotconv_dispatch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Runtime:
    """One of these for a process; tests make their own with another `folder`."""

    def __init__(self, folder: Path = FOLDER, mode: str | None = None):
        self.folder, self.mode = Path(folder), mode or read_mode()
        self.unadmitted = os.environ.get("AOTCONV_UNADMITTED") == "1"
        self.lock = threading.Lock()
        self.said, self.libraries, self.packs, self.tables, self.handles = set(), {}, {}, {}, {}
        self.native, self.failed = None, None
        self.fault = ""  # the last failure of a load or launch: what strict mode raises with

    # --- what is there -----------------------------------------------------------------------------------------

    def warn(self, text: str):
        """Say it once. A warning that is turned into an error must not cross the native planner."""
        with self.lock:
            if text in self.said:
                return
            self.said.add(text)
        try:
            warnings.warn(text, AotconvWarning, stacklevel=3)
        except AotconvWarning:
            if self.mode == "strict":
                raise

    def hear(self, fault: str):
        """A load or launch failed, and aten serves (strict mode: the call raises with this)."""
        self.fault = fault
        self.warn(fault)

    def dispatch(self):
        """The generated dispatch module of this folder."""
        if self.folder == FOLDER:
            module = importlib.import_module("aotconv.generated.dispatch")
        else:
            module = module_at(self.folder / "dispatch.py")
        found = getattr(module, "FORMAT", None)
        if found != DISPATCH_FORMAT:
            raise PackError(f"the dispatch module has format {found!r}, this aotconv reads {DISPATCH_FORMAT}; "
                            "install packs and runtime from one wheel")
        return module

    def start(self):
        """Load the launcher and hand it the planner; returns it, or None when it cannot be had (said once)."""
        with self.lock:
            if self.native or self.failed:
                return self.native
            try:
                self.native = self.load_native()
            except Exception as error:  # whatever stops the launcher, aten serves
                self.failed = f"aotconv's launcher cannot be used ({error}); every convolution is aten's"
        if self.failed:
            self.warn(self.failed)
        return self.native

    def load_native(self):
        from aotconv import native

        library = native.load(self.folder / "launcher.so")
        library.open_driver("hip" if torch.version.hip else "cuda")
        library.set_planner(self.plan)
        library.set_report(self.hear)
        return library

    def device(self, index: int) -> Device:
        """What the driver says of a device."""
        properties = torch.cuda.get_device_properties(index)
        if torch.version.hip:
            return Device("hip", arch=properties.gcnArchName, multiprocessors=properties.multi_processor_count,
                          shared_limit=properties.shared_memory_per_block)
        return Device("cuda", (properties.major, properties.minor), "", properties.multi_processor_count,
                      self.native.device_attribute(index, SHARED_OPTIN))

    def library(self, index: int) -> Library | None:
        """The artifacts for a device; None (said once) when the wheel has none that fit or they cannot be used."""
        if index not in self.libraries:
            try:
                found = self.open_library(index)
            except Exception as error:  # whatever is wrong with a device's files, aten serves it
                self.warn(f"aotconv serves nothing on device {index}: {error}")
                found = None
            with self.lock:
                self.libraries.setdefault(index, found)
        return self.libraries[index]

    def open_library(self, index: int) -> Library:
        device, dispatch = self.device(index), self.dispatch()
        shipped = [name for name in dispatch.TARGETS if self.pack_path(name).exists()]  # a wheel may hold a part of them
        target = best_target(shipped, device) or best_target(dispatch.TARGETS, device)
        if target is None:
            what = device.arch or "sm_%d%d" % device.capability
            raise PackError(f"it is a {what}, this wheel has {', '.join(dispatch.TARGETS)}; build one with --only target=...")
        self.check_driver(Target(target))
        table = self.table(target)
        return Library(self.pack(target), dispatch.KERNELS, table["admitted"], device, self.unadmitted, table)

    def check_driver(self, target: Target):
        if self.native is None or not target.minimum_driver:
            return
        found = self.native.driver_version()
        if found < target.minimum_driver:
            raise PackError(f"the driver is version {found}, binaries for {target.name} need {target.minimum_driver}; update the driver")

    def pack_path(self, target: str) -> Path:
        return self.folder / "packs" / f"{target}.pack"

    def pack(self, target: str) -> Pack:
        """The target's pack, opened once."""
        with self.lock:
            if target not in self.packs:
                pack = Pack(self.pack_path(target))
                if pack.target != target:
                    raise PackError(f"{pack.path} holds binaries for {pack.target}, expected {target}; reinstall the wheel")
                self.packs[target] = pack
            return self.packs[target]

    def table(self, target: str) -> dict:
        """The target's table; one without records admits nothing."""
        path = self.folder / "tables" / f"{target}.json"
        if not path.exists():
            return {"format": TABLE_FORMAT, "target": target, "admitted": {}}
        try:
            table = json.loads(path.read_text())
        except ValueError as error:
            raise PackError(f"{path} is not JSON ({error}); reinstall the wheel") from None
        found = table.get("format") if isinstance(table, dict) else None
        if found != TABLE_FORMAT or not isinstance(table.get("admitted"), dict):
            raise PackError(f"{path} has format {found!r}, this aotconv reads {TABLE_FORMAT}; "
                            "install packs and runtime from one wheel")
        return table

    # --- plans -------------------------------------------------------------------------------------------------

    def plan(self, words: list[int]):
        """The native planner: the words of a plan, ATEN or ATEN_ONCE."""
        call = geometry.read_key(words)
        try:
            problem = geometry.problem_of(call)
        except geometry.Uncovered:
            return ATEN
        choice = self.choose(call.device, problem, call.strict)
        if choice.artifact is None:
            return ATEN
        handle = self.load_artifact(call.device, choice.artifact)
        if not handle:
            return handle
        slots = geometry.slots(call.kind, call.transposed)
        multiprocessors = self.libraries[call.device].device.multiprocessors
        return plan_words(problem, call.dtypes[0], *launch(choice.artifact, problem, handle, slots, multiprocessors))

    def choose(self, index: int, problem, strict: bool | None = None) -> Choice:
        """What serves a problem on a device; strict: as AOTCONV_MODE says where it is None."""
        library = self.library(index)
        if library is None:
            return Choice("aten", None, lambda: (("rule", "no artifacts can be used on this device (a warning said why)"),))
        return library.choose(problem, self.mode == "strict" if strict is None else strict)

    def load_artifact(self, index: int, artifact):
        """A kernel handle; ATEN when it cannot be loaded, ATEN_ONCE while a graph is captured: nothing may load then."""
        key = (index, artifact.sha256)
        handle = self.handles.get(key)
        if handle:
            return handle
        if torch.cuda.is_current_stream_capturing():
            self.warn(f"{artifact.variant} is not loaded yet and a graph is being captured: aten serves; "
                      "call aotconv.preload(device) or run the model once before capturing")
            return ATEN_ONCE
        try:
            data = self.libraries[index].pack.binary(artifact)
            handle = self.native.load_kernel(index, data, artifact.symbol, artifact.shared)
        except RuntimeError as error:
            self.hear(f"{artifact.variant} cannot be loaded: {error}; aten serves")
            return ATEN
        with self.lock:
            return self.handles.setdefault(key, handle)

    def preload(self, index: int) -> int:
        """Load every usable artifact of a device; returns how many."""
        if self.start() is None:
            return 0
        library = self.library(index)
        artifacts = [a for a in library.pack.artifacts if library.usable(a) is None] if library else []
        return sum(bool(self.load_artifact(index, artifact)) for artifact in artifacts)
