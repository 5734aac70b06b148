"""Tuning: times every applicable artifact and aten on given problems, on the device, from built packs.

    python -m gen tune PROBLEMS.jsonl ... [--wheel X.whl | --out DIR] [--records DIR] [--dtype D] [--format F] [--op OP]
                       [--sample N] [--seed S] [--limit-seconds T] [--again]

Needs torch and the standard library; no Triton. Appends to RECORDS/<target>/timing.tsv as it goes and skips what is
recorded there, so that it can be stopped at any moment. Who wins is decided later, from the records (gen/fit.py).
"""

import argparse
import datetime
import sys
import tempfile
import time
from pathlib import Path

import torch

from aotconv.tuning import ATEN
from gen.admit import open_runtime
from gen.files import write_if_changed
from gen.problems import DTYPES, FORMATS, KINDS, ProblemError, distinct, entries_of, read_problems, sample
from gen.timing import HOT_FLOPS, Bench, Timing, aten_call, kernel_call, set_flags, together
from gen.timings import OTHER_FORMAT, Row, read_sessions, read_timings, render_sessions, render_timings

BEST = 7                # of the estimates; besides, the best of every kernel is timed
FAR = 15.0              # a candidate expected to take this many times the best so far is left out
CLOSE = 1.15            # aten and a kernel this near each other are timed again, in turn
TOP = 2                 # kernels that are
PAIRS = 2
FLUSH = 20              # problems


def main(arguments=None) -> int:
    """Time what is not recorded yet."""
    args = parse_arguments(arguments)
    if not torch.cuda.is_available():
        print("tune needs a GPU: torch.cuda.is_available() is False here", file=sys.stderr)
        return 2
    try:
        entries = chosen(args)
    except (ProblemError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        runtime = open_runtime(args, Path(folder), unadmitted=False)
        library = runtime.library(0)
        if library is None:
            return 2
        session = Session(args.records / library.pack.target, runtime)
        done = tune(runtime, library, session, entries, args)
    session.close()
    print(f"{done} of {len(entries)} problems, {session.count} timings in {session.seconds:.0f} s "
          f"({session.count / max(session.seconds, 1e-9):.0f} a second); records in {session.path}")
    return 0


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m gen tune", description="Time built artifacts and aten on this GPU.")
    add_problem_arguments(parser)
    parser.add_argument("--records", type=Path, default=Path(__file__).with_name("records"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="start no problem after this")
    parser.add_argument("--again", action="store_true", help="time what is recorded already too")
    parser.add_argument("--one-format", action="store_true", help="do not time aten on contiguous tensors besides")
    return parser.parse_args(arguments)


def add_problem_arguments(parser):
    """The arguments that say which problems, on which artifacts."""
    parser.add_argument("problems", nargs="+", type=Path, help="problem files")
    parser.add_argument("--wheel", type=Path, help="take the artifacts from this wheel")
    parser.add_argument("--out", type=Path, default=Path("generated"), help="take them from this build folder")
    parser.add_argument("--dtype", choices=DTYPES, help="of rows that name none (bf16)")
    parser.add_argument("--format", choices=tuple(FORMATS), help="of rows that name none (2-D channels_last, else contiguous)")
    parser.add_argument("--op", choices=tuple(KINDS), action="append", help="only these")
    parser.add_argument("--sample", type=int, help="so many problems, equally from each class")
    parser.add_argument("--seed", type=int, default=0)


def chosen(args) -> list:
    """Distinct problems, as the arguments ask."""
    entries = read_problems(args.problems, args.dtype, args.format, args.op or tuple(KINDS))
    return distinct(entries) if args.sample is None else sample(entries, args.sample, args.seed)


class Session:
    """This run's records: appended to the files, and what was there before."""

    def __init__(self, folder: Path, runtime):
        self.folder, self.path = folder, folder / "timing.tsv"
        self.start, self.count = time.monotonic(), 0
        self.sessions = read_sessions(folder / "sessions.tsv")
        self.fields = describe(runtime)
        self.known = {(row.problem, row.candidate): row for row in read_timings(self.path)}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def add(self, problem: str, candidate: str, timing):
        row = Row(problem, candidate, *timing, self.fields["session"])
        self.known[problem, candidate] = row
        self.count += 1

    def close(self):
        """Everything that is known, sorted, to the files."""
        if self.count:
            self.sessions[self.fields["session"]] = self.fields
        write_if_changed(self.folder / "sessions.tsv", render_sessions(self.sessions))
        write_if_changed(self.path, render_timings(row for _, row in sorted(self.known.items())))


def describe(runtime) -> dict[str, str]:
    """The fields of a session, as text."""
    properties = torch.cuda.get_device_properties(0)
    now = datetime.datetime.now(datetime.timezone.utc)
    try:
        clock = str(torch.cuda.clock_rate())
    except Exception:  # needs a library that torch does not ship
        clock = "unknown"
    return {
        "session": now.strftime("%Y%m%d-%H%M%S"), "device": properties.name.replace("\t", " "),
        "multiprocessors": str(properties.multi_processor_count), "driver": str(runtime.native.driver_version()),
        "torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "clock_mhz": clock, "date": now.date().isoformat(),
    }


def tune(runtime, library, session: Session, entries: list, args) -> int:
    """Time every problem until the limit; returns how many were reached."""
    bench = Bench()
    for number, entry in enumerate(entries):
        if session.seconds > args.limit_seconds:
            return number
        show(session, number, len(entries), args.limit_seconds)
        try:
            tune_one(runtime, library, bench, session, entry, args)
        except RuntimeError as error:  # one problem must not end the run: out of memory, an algorithm that aten lacks
            print(f"\n{entry.key}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.cuda.empty_cache()
        if number % FLUSH == FLUSH - 1:
            session.close()
    return len(entries)


def show(session: Session, number: int, total: int, limit: float):
    left = session.seconds / number * (total - number) if number else 0.0
    print(f"\r{number}/{total} problems, {session.count} timings, about {min(left, max(limit - session.seconds, 0)):.0f} s left   ",
          end="", file=sys.stderr, flush=True)


def tune_one(runtime, library, bench: Bench, session: Session, entry, args):
    """aten and every candidate of one problem, then the closest of them once more in turn."""
    name, problem = entry.key, entry.problem
    found = candidates(library, problem)
    known = {n: row.us for n in (ATEN, *(a.variant for _, a in found)) if (row := session.known.get((name, n))) and not args.again}
    if len(known) == len(found) + 1:
        return
    set_flags(problem)
    tensors = bench.tensors(problem)
    calls, heavy, best = {}, problem.flops > HOT_FLOPS, min(known.values(), default=float("inf"))
    for candidate, estimate, call in calls_of(runtime, bench, entry, found, tensors):
        if candidate in known or call is None or estimate > FAR * best:
            continue
        calls[candidate] = call
        timing = bench.measure(call, len(tensors), heavy, best)
        best = min(best, timing.us)
        session.add(name, candidate, timing)
    settle(bench, session, name, calls, len(tensors))
    if ATEN in calls and not args.one_format:
        time_other_format(bench, session, entry, heavy)


def candidates(library, problem) -> list:
    """(expected microseconds, artifact) worth a timing: the best, and the best of every kernel. A kernel with 64-bit
    indices only where there is no other."""
    rows = library.ranked(problem)
    rows = [row for row in rows if not row[1].endswith("_i64")] or rows
    first = {}
    for row in rows:
        first.setdefault(row[1], row)
    return list({artifact.variant: (us, artifact) for us, _, artifact in [*rows[:BEST], *first.values()]}.values())


def calls_of(runtime, bench: Bench, entry, found: list, tensors: list):
    """(candidate, expected microseconds, call), aten first; made when they are asked for."""
    yield ATEN, 0.0, aten_call(entry, tensors)
    for us, artifact in found:
        yield artifact.variant, us, kernel_call(runtime, artifact, entry.problem, tensors, bench.stream)


def settle(bench: Bench, session: Session, name: str, calls: dict, sets: int):
    """Time aten and the nearest kernels again, in turn; the median of a candidate's medians stands."""
    kernels = sorted((c for c in calls if c != ATEN), key=lambda c: session.known[name, c].us)[:TOP]
    aten = session.known[name, ATEN].us if ATEN in calls else 0.0
    near = [c for c in kernels if aten / CLOSE < session.known[name, c].us < aten * CLOSE]
    if not near:
        return
    found = {c: [Timing(*session.known[name, c][2:5])] for c in (ATEN, *near)}
    for candidate in [*found] * PAIRS:
        found[candidate].append(bench.measure(calls[candidate], sets))
    for candidate, timings in found.items():
        session.add(name, candidate, together(timings))


def time_other_format(bench: Bench, session: Session, entry, heavy: bool):
    """aten on contiguous tensors, where the problem's are channels-last."""
    if entry.row["format"] != "channels_last" or entry.row.get("strides"):
        return
    other = next(e for e in entries_of({**entry.row, "format": "contiguous"}) if e.kind == entry.kind)
    tensors = bench.tensors(other.problem)
    session.add(entry.key, OTHER_FORMAT, bench.measure(aten_call(other, tensors), len(tensors), heavy))


if __name__ == "__main__":
    sys.exit(main())
