"""What would serve a problem on each target, and why: dispatch as the runtime does it, from the build folder, without a GPU."""

import json
import runpy

from aotconv.pack import Pack
from aotconv.select import Library
from aotconv.target import Device, Target
from gen.graph import Place
from gen.problems import ProblemError, entries_of, problem_from

MULTIPROCESSORS = 132  # of the device that is asked about, where the table was tuned on none


def is_problem(text: str) -> bool:
    """Whether it is a row of a problem file, or a problem's key, rather than a name."""
    return text.startswith("{") or "-x" in text


def explain_problem(text: str, targets, place: Place) -> list[str]:
    """Lines for each target that has a pack and a table, and each convolution that the text asks for."""
    found = []
    for target in targets:
        library = open_library(place, target)
        for problem in problems_of(text) if library else ():
            choice = library.choose(problem)
            variant = choice.artifact.variant if choice.artifact else "aten"
            found.append(f"{problem.op} on {target.name} with {library.device.multiprocessors} multiprocessors: {choice.tier}, {variant}")
            found += [f"  {tier}: {reason}" for tier, reason in choice.reasons]
    return found or ["no target has a pack and a table; run python -m gen build"]


def problems_of(text: str) -> list:
    try:
        return [e.problem for e in entries_of(json.loads(text))] if text.startswith("{") else [problem_from(text)]
    except (ValueError, TypeError) as error:
        raise ProblemError(f"{text} is no problem ({error}); give a row of a problem file, or a key such as timing.tsv has") from None


def open_library(place: Place, target: Target) -> Library | None:
    """The target's library for a device of its own; None where it is not built or has no records."""
    pack, table = place.path / "packs" / f"{target.name}.pack", place.path / "tables" / f"{target.name}.json"
    if not pack.exists() or not table.exists():
        return None
    table = json.loads(table.read_text())
    kernels = runpy.run_path(str(place.path / "dispatch.py"))["KERNELS"]
    return Library(Pack(pack), kernels, table["admitted"], device_of(target, min(map(int, table["tuned"]), default=MULTIPROCESSORS)), table=table)


def device_of(target: Target, multiprocessors: int) -> Device:
    capability = divmod(target.arch, 10) if target.backend == "cuda" else (0, 0)
    arch = "" if target.backend == "cuda" else target.name
    return Device(target.backend, capability, arch, multiprocessors, target.shared_limit)
