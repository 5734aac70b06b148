"""Records and pack of one target -> its dispatch table.

    python -m gen.table --out DIR --target T --records DIR

A record stands for the very bytes that were tested: a variant is admitted when its record says `pass` and names the
SHA-256 of the artifact in the pack. Writes DIR/tables/T.json, sorted, a line for each variant.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from aotconv.pack import Pack, PackError
from gen.files import write_if_changed

FORMAT = 1
COLUMNS = ("variant", "sha256", "result", "problems", "worst", "device", "driver", "date")


class RecordError(ValueError):
    """A record file that cannot be read: names the line, what was found and what was expected."""


@dataclass(frozen=True)
class Admission:
    """One line of admission.tsv: what a device said of one artifact's bytes."""

    variant: str
    sha256: str
    result: str          # `pass`, or `fail: reason`
    problems: int
    worst: float         # the largest error over its bound
    device: str
    driver: str
    date: str


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gen.table", description="Make one target's dispatch table.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--records", type=Path, required=True)
    args = parser.parse_args(arguments)
    try:
        write_table(args.out, args.target, args.records)
    except (RecordError, PackError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def write_table(out: Path, target: str, records: Path) -> bool:
    """Write the table of `target`; returns whether it changed."""
    built = {a.variant: a.sha256 for a in Pack(out / "packs" / f"{target}.pack").artifacts}
    table = make_table(target, built, read_admissions(records / target / "admission.tsv"))
    return write_if_changed(out / "tables" / f"{target}.json", render_table(table))


def make_table(target: str, built: dict[str, str], admissions: list[Admission]) -> dict:
    """The table of the artifacts in `built` (variant -> SHA-256)."""
    return {"format": FORMAT, "target": target, "admitted": admitted(built, admissions), "tuned": {}, "costs": {}}


def admitted(built: dict[str, str], admissions: list[Admission]) -> dict[str, str]:
    """Variants of which these very bytes passed."""
    passed = {(a.variant, a.sha256) for a in admissions if a.result == "pass"}
    return {variant: digest for variant, digest in sorted(built.items()) if (variant, digest) in passed}


def render_table(table: dict) -> str:
    return json.dumps(table, indent=1, sort_keys=True) + "\n"


def read_admissions(path: Path) -> list[Admission]:
    """The records of one target; each variant has one, in order."""
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()] or [[]]
    if tuple(header) != COLUMNS:
        raise RecordError(f"{path}: its first line is {header}, expected {list(COLUMNS)}; measure again: python -m gen admit")
    admissions = [read_row(path, number, row) for number, row in enumerate(rows, 2)]
    names = [a.variant for a in admissions]
    if names != sorted(set(names)):
        raise RecordError(f"{path}: its variants are not sorted or not unique; merge it so that each stands once, in order")
    return admissions


def read_row(path: Path, number: int, row: list[str]) -> Admission:
    try:
        variant, digest, result, problems, worst, *place = row
        if result != "pass" and not result.startswith("fail: "):
            raise ValueError(f"result {result!r}, expected 'pass' or 'fail: REASON'")
        return Admission(variant, digest, result, int(problems), float(worst), *place)
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path}, line {number}: {error}; a line has {', '.join(COLUMNS)}") from None


if __name__ == "__main__":
    sys.exit(main())
