"""Which tuned problems are out of date: a kernel that nobody timed on them is expected to be faster than what was timed.

Such a problem loses its entry in the tuned tier and falls to the rule tier, until `python -m gen tune` times it.
"""

import importlib.util
from pathlib import Path

from aotconv.pack import Pack
from aotconv.select import Library
from aotconv.target import Device, Target
from gen.problems import read_problems

WORTH = 0.97  # expected time over the fastest timed one


def superseded(out: Path, table: dict, times: dict[str, dict[str, dict[str, float]]], problems: Path) -> dict[str, set[str]]:
    """Multiprocessors -> problems to drop. times: multiprocessors -> problem -> candidate -> microseconds."""
    if not problems.exists():
        return {}
    entries = {entry.key: entry.problem for entry in read_problems([problems])}
    kernels, pack = read_kernels(out / "dispatch.py"), Pack(out / "packs" / f"{table['target']}.pack")
    found = {}
    for size, timed in times.items():
        library = Library(pack, kernels, table["admitted"], device_of(Target(table["target"]), int(size)), table=table)
        found[size] = {key for key, row in timed.items() if key in entries and is_superseded(library, entries[key], row)}
    return found


def is_superseded(library: Library, problem, timed: dict[str, float]) -> bool:
    """Whether the best untimed kernel is expected to beat the best time; 64-bit kernels are never timed beside others."""
    fastest = min(us for candidate, us in timed.items() if not candidate.startswith("aten_"))
    return any(us < WORTH * fastest and artifact.variant not in timed and not kernel.endswith("_i64")
               for us, kernel, artifact in library.ranked(problem)[:1])


def device_of(target: Target, multiprocessors: int) -> Device:
    """A device of the target with so many multiprocessors."""
    return Device(target.backend, divmod(target.arch, 10) if target.backend == "cuda" else (0, 0),
                  target.name, multiprocessors, target.shared_limit)


def read_kernels(path: Path) -> dict:
    """The KERNELS of a rendered dispatch module."""
    spec = importlib.util.spec_from_file_location("aotconv_dispatch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.KERNELS
