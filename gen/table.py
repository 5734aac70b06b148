"""Records and pack of one target -> its dispatch table.

    python -m gen.table --out DIR --target T --records DIR [--models DIR]

A record stands for the very bytes that were tested: a variant is admitted when its record says `pass` and names the
SHA-256 of the artifact in the pack. The tuned tier's winners come from the timing records, costs and aten's times from
the fitted models (gen/fit.py), where there are any. Writes DIR/tables/T.json, sorted, a line for each variant.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from aotconv.pack import Pack, PackError
from aotconv.tuning import ATEN, FEATURES, cost_name
from gen.files import write_if_changed
from gen.timings import Row, TimingError, read_sessions, read_timings
from gen.untimed import superseded

FORMAT = 1
MODEL_FORMAT = 1
MODELS = Path(__file__).with_name("models")
TIE = 0.01           # kernels this much slower than the fastest are as fast: the first by name wins
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
    parser.add_argument("--models", type=Path, default=MODELS)
    args = parser.parse_args(arguments)
    try:
        write_table(args.out, args.target, args.records, args.models)
    except (RecordError, TimingError, PackError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def write_table(out: Path, target: str, records: Path, models: Path = MODELS) -> bool:
    """Write the table of `target`; returns whether it changed."""
    built = {a.variant: a.sha256 for a in Pack(out / "packs" / f"{target}.pack").artifacts}
    folder = records / target
    table = make_table(target, built, read_admissions(folder / "admission.tsv"))
    table |= fitted(read_models(models / f"{target}.json"), table["admitted"])
    times = by_problem(read_timings(folder / "timing.tsv"), multiprocessors(folder))
    table["tuned"] = winners(times, table["admitted"], superseded(out, table, times, folder / "problems.jsonl"))
    return write_if_changed(out / "tables" / f"{target}.json", render_table(table))


def make_table(target: str, built: dict[str, str], admissions: list[Admission]) -> dict:
    """The table of the artifacts in `built` (variant -> SHA-256), nothing measured."""
    return {"format": FORMAT, "target": target, "admitted": admitted(built, admissions), "tuned": {}, "costs": {}, "aten": {}}


def multiprocessors(folder: Path) -> dict[str, str]:
    """Session -> multiprocessors of its device."""
    return {name: fields["multiprocessors"] for name, fields in read_sessions(folder / "sessions.tsv").items()}


def by_problem(rows: list[Row], sizes: dict[str, str]) -> dict[str, dict[str, dict[str, float]]]:
    """Multiprocessors -> problem -> candidate -> microseconds. sizes: session -> multiprocessors."""
    times = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.session not in sizes:
            raise TimingError(f"timing.tsv has a row of session {row.session!r}, which sessions.tsv does not know; measure again: python -m gen tune")
        times[sizes[row.session]][row.problem][row.candidate] = row.us
    return times


def winners(times: dict, allowed, dropped: dict[str, set[str]] | None = None) -> dict[str, dict[str, str]]:
    """Multiprocessors -> problem -> the fastest of `allowed`, or aten. A problem on which aten was not timed has none."""
    dropped = dropped or {}
    return {size: {problem: winner(found, allowed) for problem, found in problems.items()
                   if ATEN in found and problem not in dropped.get(size, ())}
            for size, problems in times.items()}


def winner(times: dict[str, float], allowed) -> str:
    """The fastest; of kernels within TIE of the fastest, the first by name; aten where it is faster than that one."""
    kernels = {name: us for name, us in times.items() if name in allowed}
    least = min(kernels.values(), default=float("inf"))
    first = min((name for name, us in kernels.items() if us <= least * (1 + TIE)), default=ATEN)
    return first if times[first] <= times[ATEN] else ATEN


def fitted(models: dict, allowed) -> dict:
    """Costs of the variants that are allowed, and aten's times."""
    wanted = set(map(cost_name, allowed))
    return {"aten": models["aten"], "costs": {name: weights for name, weights in models["costs"].items() if name in wanted}}


def read_models(path: Path) -> dict:
    """The fitted models of one target; empty when there are none."""
    if not path.exists():
        return {"aten": {}, "costs": {}}
    models = json.loads(path.read_text())
    if (models.get("format"), models.get("features")) != (MODEL_FORMAT, list(FEATURES)):
        raise RecordError(f"{path} has format {models.get('format')!r} and features {models.get('features')}, "
                          f"expected {MODEL_FORMAT} and {list(FEATURES)}; fit again: python -m gen fit")
    return models


def admitted(built: dict[str, str], admissions: list[Admission]) -> dict[str, str]:
    """Variants of which these very bytes passed."""
    passed = {(a.variant, a.sha256) for a in admissions if a.result == "pass"}
    return {variant: digest for variant, digest in sorted(built.items()) if (variant, digest) in passed}


def render_table(table: dict) -> str:
    """Sorted JSON; a list of weights stands in one line."""
    text = json.dumps(table, indent=1, sort_keys=True)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text) + "\n"


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
