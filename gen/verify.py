"""A wheel -> its faults, from the file alone: nothing is installed, no device is needed."""

import base64
import csv
import hashlib
import json
import tempfile
import zipfile
from pathlib import Path

from aotconv.pack import Pack, PackError
from gen.native import glibc_floor
from gen.table import FORMAT as TABLE_FORMAT

INSIDE = "aotconv/generated/"
ALWAYS = ("__init__.py", "dispatch.py", "launcher.so")


def faults(wheel: Path) -> list[str]:
    """What is wrong with the wheel, a sentence each; empty when it is sound."""
    try:
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
            found = record_faults(archive)
            if not found:
                archive.extractall(folder)
                found = generated_faults(Path(folder, INSIDE), wheel.name)
            return [f"{wheel.name}: {fault}" for fault in found]
    except (OSError, zipfile.BadZipFile) as error:
        return [f"{wheel}: {error}; make it again: python -m gen wheel"]


def record_faults(archive: zipfile.ZipFile) -> list[str]:
    """Files that differ from the wheel's own RECORD, or that one of the two does not have."""
    names = [name for name in archive.namelist() if not name.endswith("/")]
    record = next((name for name in names if name.endswith(".dist-info/RECORD")), None)
    if record is None:
        return ["it has no RECORD"]
    rows = {row[0]: row[1] for row in csv.reader(archive.read(record).decode().splitlines()) if row}
    found = [f"{name} is in only one of the wheel and its RECORD" for name in sorted(set(names) ^ set(rows))]
    return found + [f"{name} does not match its hash in RECORD" for name in names
                    if name in rows and name != record and not matches(archive, name, rows[name])]


def matches(archive: zipfile.ZipFile, name: str, recorded: str) -> bool:
    try:
        digest = hashlib.sha256(archive.read(name)).digest()
    except zipfile.BadZipFile:
        return False
    return recorded == "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def generated_faults(folder: Path, wheel_name: str) -> list[str]:
    """What is missing, foreign, or inconsistent below aotconv/generated."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    packs = sorted(name for name in names if name.startswith("packs/") and name.endswith(".pack"))
    tables = sorted(name for name in names if name.startswith("tables/") and name.endswith(".json"))
    found = [f"{INSIDE}{name} is missing" for name in ALWAYS if name not in names]
    found += [f"{INSIDE}{name} does not belong in a wheel" for name in sorted(names - {*ALWAYS, *packs, *tables})]
    found += [] if packs else ["it holds no pack"]
    for name in packs:
        found += pack_faults(folder / name)
    for name in tables:
        found += table_faults(folder / name)
    return found + (launcher_faults(folder / "launcher.so", wheel_name) if "launcher.so" in names else [])


def pack_faults(path: Path) -> list[str]:
    try:
        pack = Pack(path)
    except PackError as error:
        return [str(error)]
    named = [] if pack.target == path.stem else [f"{path.name} is a pack of {pack.target}"]
    return named + pack.faults()


def table_faults(path: Path) -> list[str]:
    """Whether the table is of a known format and admits only bytes that are in the pack."""
    try:
        table = json.loads(path.read_text())
    except ValueError as error:
        return [f"{path.name} is no table: {error}; run python -m gen table"]
    if (table.get("format"), table.get("target")) != (TABLE_FORMAT, path.stem):
        return [f"{path.name}: format {table.get('format')!r} of {table.get('target')!r}, expected {TABLE_FORMAT} of {path.stem!r}"]
    try:
        packed = {a.variant: a.sha256 for a in Pack(path.parent.parent / "packs" / f"{path.stem}.pack").artifacts}
    except PackError as error:
        return [f"{path.name} has no usable pack: {error}"]
    return [f"{path.name} admits {name} with bytes that the pack does not hold; run python -m gen table"
            for name, digest in table["admitted"].items() if packed.get(name) != digest]


def launcher_faults(path: Path, wheel_name: str) -> list[str]:
    tag = "manylinux_{}_{}_x86_64".format(*glibc_floor(path))
    return [] if f"-{tag}." in wheel_name else [f"the launcher needs {tag}, which is not the wheel's tag"]
