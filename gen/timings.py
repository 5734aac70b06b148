"""Timing records: text files that hold what was measured, where and with what. Standard library only.

RECORDS/<target>/timing.tsv has a line for each (problem, candidate): an artifact's variant, `aten`, or
`aten_contiguous` (aten on contiguous tensors, for a channels-last problem). sessions.tsv says what each session ran on.
"""

from pathlib import Path
from typing import NamedTuple

FIELDS = ("problem", "candidate", "us", "spread", "samples", "session")
SESSION_FIELDS = ("session", "device", "multiprocessors", "driver", "torch", "cudnn", "clock_mhz", "date")
OTHER_FORMAT = "aten_contiguous"


class TimingError(ValueError):
    """A file of timings that cannot be read: names the line, what was found and what was expected."""


class Row(NamedTuple):
    """One timing: median microseconds of `samples` replays; spread is half of the middle half's width over the median."""

    problem: str
    candidate: str
    us: float
    spread: float
    samples: int
    session: str

    @property
    def text(self) -> str:
        return f"{self.problem}\t{self.candidate}\t{self.us:.2f}\t{self.spread:.3f}\t{self.samples}\t{self.session}\n"


def read_timings(path: Path) -> list[Row]:
    """The rows of a timing file; none when it is not there."""
    return [parse_row(path, number, values) for number, values in lines(path, FIELDS)]


def parse_row(path, number: int, values: list[str]) -> Row:
    try:
        problem, candidate, us, spread, samples, session = values
        return Row(problem, candidate, float(us), float(spread), int(samples), session)
    except ValueError as error:
        raise TimingError(f"{path}, line {number}: {error}; a line has {', '.join(FIELDS)}") from None


def read_sessions(path: Path) -> dict[str, dict]:
    """Session -> its fields."""
    return {values[0]: dict(zip(SESSION_FIELDS, values, strict=True)) for _, values in lines(path, SESSION_FIELDS)}


def lines(path: Path, fields) -> list[tuple[int, list[str]]]:
    """(number, values) of every line after the header."""
    if not path.exists():
        return []
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()] or [[]]
    if tuple(header) != fields:
        raise TimingError(f"{path}: its first line is {header}, expected {list(fields)}; measure again: python -m gen tune")
    return list(enumerate(rows, 2))


def render_timings(rows) -> str:
    return "\t".join(FIELDS) + "\n" + "".join(row.text for row in rows)


def render_sessions(sessions: dict[str, dict]) -> str:
    return "".join("\t".join(row) + "\n" for row in [SESSION_FIELDS, *([s[f] for f in SESSION_FIELDS] for _, s in sorted(sessions.items()))])
