"""Build, then the wheel: hatchling assembles it, gen/wheel_hook.py says what goes in."""

import os
import tomllib
from pathlib import Path

from aotconv.target import Target
from gen.build import build
from gen.graph import ROOT, Place
from gen.only import Only, OnlyError
from gen.plan import Plan
from gen.report import read_built

EPOCH = "1580601600"  # the time of every file in the wheel, hatchling's own choice: bytes depend on content alone


class WheelError(RuntimeError):
    """A wheel that must not be made."""


def make_wheel(plan: Plan, place: Place, only: Only, dist: Path, require_admitted: list[str], say=print) -> Path:
    """Build what `only` selects and write the wheel into `dist`; returns its path."""
    if not only.whole_targets:
        raise OnlyError("a wheel holds whole targets, so its --only may name nothing but target=...")
    build(plan, place, only, say)
    targets = [target.name for target in only.targets(plan)]
    for name in require_admitted:
        check_admitted(place.path, name, targets)
    return assemble(place, targets, dist)


def check_admitted(out: Path, name: str, targets: list[str]):
    """Raise WheelError unless each artifact of the target `name` is admitted."""
    if name not in targets:
        raise WheelError(f"--require-admitted {name}: the wheel has only {', '.join(targets)}")
    built = read_built(out, Target.parse(name).name)
    if built.admitted < built.artifacts:
        raise WheelError(f"{name}: admitted {built.admitted} of {built.artifacts}; test the others on such a device "
                         "(python -m gen admit), commit the records, and make the wheel again")


def assemble(place: Place, targets: list[str], dist: Path) -> Path:
    """The wheel of what stands in the output folder."""
    from hatchling.builders.wheel import WheelBuilder

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    config["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"].update(out=str(place.path), targets=targets)
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = EPOCH
    try:
        return Path(*WheelBuilder(str(ROOT), config=config).build(directory=str(dist), versions=["standard"]))
    except OSError as error:
        raise WheelError(f"hatchling cannot make the wheel: {error}") from None
    finally:
        os.environ.pop("SOURCE_DATE_EPOCH")
        os.environ.update({"SOURCE_DATE_EPOCH": before} if before else {})
