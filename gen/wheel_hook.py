"""Hatchling's build hook: what enters the wheel besides the runtime's own modules, and the wheel's tag.

Everything is named by the manifest: no folder is searched. `python -m gen wheel` passes `out` and `targets` through the
hook's own configuration; `pip wheel .` takes the default folder and every target.
"""

import json
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSIDE = "aotconv/generated"
REMEDY = "run `python -m gen wheel`, which builds it"


class WheelHook(BuildHookInterface):
    """Adds the generated files to a wheel; an editable install finds them through the symlink."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict):
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            files = wheel_files(Path(self.root, self.config.get("out", "generated")), self.config.get("targets"))
            build_data["force_include"].update({str(path): f"{INSIDE}/{name}" for name, path in files.items()})
            build_data.update(tag=wheel_tag(files["launcher.so"]), pure_python=False)
        except MissingPart as error:
            self.app.abort(f"aotconv: {error}")
        finally:
            sys.path.remove(self.root)


class MissingPart(RuntimeError):
    """Something that the wheel must hold was not built."""


def wheel_files(out: Path, targets: list[str] | None = None) -> dict[str, Path]:
    """Name below aotconv/generated -> file, for `targets` of the manifest (all when None)."""
    manifest = read_manifest(out / "manifest.tsv")
    names = ["__init__.py", "dispatch.py", "launcher.so"]
    for target in targets or list(manifest):
        check_pack(out / "packs" / f"{target}.pack", manifest[target])
        names += [f"packs/{target}.pack", *([f"tables/{target}.json"] if (out / "tables" / f"{target}.json").exists() else [])]
    for name in names:
        if not (out / name).is_file():
            raise MissingPart(f"{out / name} is missing; {REMEDY}")
    return {name: out / name for name in names}


def read_manifest(path: Path) -> dict[str, set[str]]:
    """Target -> names of its variants, in the manifest's order."""
    if not path.is_file():
        raise MissingPart(f"{path} is missing; {REMEDY}")
    found = {}
    for line in path.read_text().splitlines()[1:]:
        target, *variant = line.split("\t")
        found.setdefault(target, set()).add("-".join(variant))
    return found


def check_pack(path: Path, expected: set[str]):
    """A pack of another manifest must not ship under this one."""
    from aotconv.pack import Pack, PackError

    if not path.is_file():
        raise MissingPart(f"{path} is missing; {REMEDY}")
    try:
        pack = Pack(path)
    except (PackError, json.JSONDecodeError) as error:
        raise MissingPart(f"{error}; {REMEDY}") from None
    found = {a.variant for a in pack.artifacts} | set(pack.header["dropped"])
    if different := sorted(found ^ expected):
        raise MissingPart(f"{path} and the manifest differ in {len(different)} variants, the first is {different[0]}; {REMEDY}")


def wheel_tag(launcher: Path) -> str:
    """Any Python 3, on a glibc that has what the launcher asks for."""
    from gen.native import glibc_floor

    return "py3-none-manylinux_{}_{}_x86_64".format(*glibc_floor(launcher))
