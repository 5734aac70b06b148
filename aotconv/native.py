"""The native launcher from Python: ctypes around its C interface, for everything that happens rarely.

The frequent path, `torch.ops.aotconv._run`, is the launcher's own operator and does not come through here.
"""

import atexit
import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

ABI = 1
PLAN_MAGIC = 0x41435031  # "ACP1", the first word of a plan
KINDS = {"cuda": 0, "hip": 1}
ATEN, ATEN_THIS_TIME = 0, -1  # what a planner answers instead of a number of words

_Words = ctypes.POINTER(ctypes.c_int64)
_Planner = ctypes.CFUNCTYPE(ctypes.c_int, _Words, ctypes.c_int, _Words, ctypes.c_int)
_Report = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_StreamGetter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
_Out = ctypes.POINTER(ctypes.c_int)
_ERROR = (ctypes.c_char_p, ctypes.c_size_t)

_SIGNATURES = {
    "aotconv_abi": (ctypes.c_int, ()),
    "aotconv_register": (ctypes.c_int, _ERROR),
    "aotconv_open_driver": (ctypes.c_int, (ctypes.c_int, ctypes.c_char_p, *_ERROR)),
    "aotconv_set_planner": (None, (_Planner,)),
    "aotconv_set_report": (None, (_Report,)),
    "aotconv_set_stream_getter": (None, (_StreamGetter,)),
    "aotconv_load": (
        ctypes.c_int64,
        (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int, *_ERROR),
    ),
    "aotconv_driver_version": (ctypes.c_int, (_Out,)),
    "aotconv_device_attribute": (ctypes.c_int, (ctypes.c_int, ctypes.c_int, _Out, *_ERROR)),
    "aotconv_function_attribute": (ctypes.c_int, (ctypes.c_int64, ctypes.c_int, _Out, *_ERROR)),
    "aotconv_launch": (
        ctypes.c_int,
        (_Words, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), *_ERROR),
    ),
    "aotconv_memo_clear": (None, ()),
    "aotconv_memo_stats": (None, (_Words,)),
    "aotconv_memo_limit": (None, (ctypes.c_int,)),
    "aotconv_probe": (ctypes.c_int, (_Words, ctypes.c_int)),
}

_libraries = []  # torch.library.Library objects; collected ones would take their registrations with them


class NativeError(RuntimeError):
    """The launcher or the GPU driver refused: says what was found, what was expected and what to do."""

    def __init__(self, sentence: str, status: int = 1):
        super().__init__(sentence)
        self.status = status  # the driver's error number; 1 also when it was not the driver


def load(path: str | Path) -> "Native":
    """Loads the launcher and registers `torch.ops.aotconv._run`. Needs torch; initialises no GPU."""
    import torch  # noqa: F401  the launcher looks the loaded libtorch up

    native = Native(path)
    native.register()
    if not _libraries:
        _libraries.append(_without_autograd())
    return native


def _without_autograd():
    """Lets `_run` pass torch's autograd fallback by: it costs microseconds, and no gradient is ever taken of `_run`."""
    from torch.library import Library, fallthrough_kernel

    library = Library("aotconv", "IMPL")
    for key in ("AutogradCUDA", "AutogradCPU"):
        library.impl("_run", fallthrough_kernel, key)
    return library


def words(values: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_int64 * len(values))(*values)


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer: ctypes gives no address of read-only memory, such as a mapped pack, without it."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def address(buffer) -> int:
    """Where a contiguous bytes-like object lies; good while somebody keeps the object."""
    view = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(view), 0)
    try:
        return view.buf
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))


class Native:
    """One loaded launcher. Methods raise NativeError with the launcher's own sentence."""

    def __init__(self, path: str | Path):
        try:
            self.lib = ctypes.CDLL(str(path))
            self._bind()
        except (OSError, AttributeError) as error:
            raise NativeError(f"the native launcher {path} cannot be loaded ({error}): install aotconv's wheel again")
        if (found := self.lib.aotconv_abi()) != ABI:
            raise NativeError(f"{path} has launcher ABI {found}, expected {ABI}: install aotconv's wheel again")
        self._images = {}  # handle -> what holds its image: the launcher knows images by address
        self._kept = {}  # callbacks that the library may still call
        self._report = None

    def _bind(self) -> None:
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments

    def _checked(self, function, *arguments) -> int:
        error = ctypes.create_string_buffer(512)
        status = function(*arguments, error, len(error))
        if status < 0:
            raise NativeError(error.value.decode(errors="replace"), -status)
        return status

    def register(self) -> None:
        self._checked(self.lib.aotconv_register)

    def open_driver(self, kind: str = "cuda", path: str | None = None) -> None:
        """Opens the driver library of `kind` (`cuda` or `hip`); a second time is free. No GPU is initialised."""
        if kind not in KINDS:
            raise NativeError(f"driver kind {kind!r} is unknown; expected one of {', '.join(KINDS)}")
        self._checked(self.lib.aotconv_open_driver, KINDS[kind], path.encode() if path else None)

    def driver_version(self) -> int:
        """As the driver counts: 13010 is CUDA 13.1."""
        value = ctypes.c_int()
        if self.lib.aotconv_driver_version(ctypes.byref(value)):
            raise NativeError("the GPU driver is not open: call open_driver first")
        return value.value

    def device_attribute(self, device: int, attribute: int) -> int:
        value = ctypes.c_int()
        self._checked(self.lib.aotconv_device_attribute, device, attribute, ctypes.byref(value))
        return value.value

    def function_attribute(self, handle: int, attribute: int) -> int:
        value = ctypes.c_int()
        self._checked(self.lib.aotconv_function_attribute, handle, attribute, ctypes.byref(value))
        return value.value

    def load_kernel(self, device: int, image, symbol: str, shared: int = 0) -> int:
        """Loads a binary (bytes-like, kept from now on) and gives the handle of its kernel; the same twice is one."""
        size = memoryview(image).nbytes
        handle = self._checked(self.lib.aotconv_load, device, address(image), size, symbol.encode(), shared)
        self._images[handle] = image
        return handle

    def launch(self, plan: Sequence[int], device: int, stream: int, pointers: Sequence[int | None]) -> None:
        """Runs a plan's steps; `pointers` are the addresses of a, b, c, out and the workspace, None where absent."""
        if len(pointers) != 5:
            raise NativeError(f"a launch takes 5 pointers (a, b, c, out, workspace), found {len(pointers)}")
        slots = (ctypes.c_void_p * 5)(*pointers)
        self._checked(self.lib.aotconv_launch, words(plan), len(plan), device, stream, slots)

    def set_planner(self, planner: Callable[[list[int]], list[int] | None | bool] | None) -> None:
        """Sets what a miss asks. It answers a plan's words, None (aten, remembered) or False (aten, this time only).

        An exception in it is reported, and aten serves this time.
        """

        def answer(key, count, out, room):
            try:
                return _write(planner(key[:count]), out, room)
            except BaseException as error:  # nothing may unwind into C
                self._say(f"planning failed with {type(error).__name__}: {error}; aten serves this call")
                return ATEN_THIS_TIME

        self._keep("planner", _Planner(answer) if planner else _Planner(), self.lib.aotconv_set_planner)

    def set_report(self, report: Callable[[str], None] | None) -> None:
        """Sets who hears of failures, one sentence each; called from any thread."""

        def say(sentence):
            try:
                report(sentence.decode(errors="replace"))
            except BaseException:  # nothing may unwind into C, and there is nobody left to tell
                pass

        self._report = report
        self._keep("report", _Report(say) if report else _Report(), self.lib.aotconv_set_report)

    def set_stream_getter(self, getter: Callable[[int], int] | None) -> None:
        """For tests: replaces torch's current stream."""

        def get(device, out):
            out[0] = getter(device)
            return 0

        function = _StreamGetter(get) if getter else _StreamGetter()
        self._keep("stream", function, self.lib.aotconv_set_stream_getter)

    def _keep(self, name: str, function, setter) -> None:
        if not self._kept:
            atexit.register(self.detach)
        setter(function)
        # The one before stays too: another thread may be about to call it.
        self._kept.setdefault(name, []).append(function)

    def _say(self, sentence: str) -> None:
        if self._report:
            try:
                self._report(sentence)
            except Exception:
                pass

    def detach(self) -> None:
        """Takes the callbacks back: a thread that outlives the interpreter must not call into it."""
        self.lib.aotconv_set_planner(_Planner())
        self.lib.aotconv_set_report(_Report())

    def memo_clear(self) -> None:
        self.lib.aotconv_memo_clear()

    def memo_limit(self, most: int) -> None:
        self.lib.aotconv_memo_limit(most)

    def memo_stats(self) -> dict[str, int]:
        out = (ctypes.c_int64 * 4)()
        self.lib.aotconv_memo_stats(out)
        return dict(zip(("size", "hits", "misses", "evictions"), out))

    def probe(self, key: Sequence[int]) -> bool:
        """Looks a key up as `_run` would, without tensors: True for a plan, False for aten."""
        return bool(self.lib.aotconv_probe(words(key), len(key)))


def _write(plan, out, room: int) -> int:
    if plan is None:
        return ATEN
    if plan is False:
        return ATEN_THIS_TIME
    if len(plan) > room:
        raise NativeError(f"the plan has {len(plan)} words, expected at most {room}: split the problem or use aten")
    ctypes.memmove(out, words(plan), 8 * len(plan))
    return len(plan)
