"""GPU convolutions compiled ahead of time.

Importing this opens nothing and starts nothing. The operators are registered when torch is already loaded, else at the
first public name; packs, tables and the launcher are opened at the first call on a GPU.
"""

import sys

_HOMES = {
    "conv1d": "ops", "conv2d": "ops", "conv3d": "ops",
    "conv_transpose1d": "ops", "conv_transpose2d": "ops", "conv_transpose3d": "ops",
    "convolution": "ops", "convolution_backward": "ops", "_convolution": "ops",
    "explain": "report", "info": "report", "verify": "report", "preload": "report",
    "Explanation": "report", "Info": "report",
    "AotconvError": "runtime", "AotconvWarning": "runtime",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'aotconv' has no attribute {name!r}; it has {', '.join(__all__)}")
    import importlib

    importlib.import_module("aotconv.ops")
    value = getattr(importlib.import_module(f"aotconv.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return __all__


if "torch" in sys.modules:
    __getattr__("conv2d")
