"""The bench: what dispatch makes of the artifacts, beside aten in both memory formats, on given problems.

    scripts/bench PROBLEMS.jsonl ... [--wheel X.whl | --out DIR] [--dtype D] [--format F] [--op OP] [--tier rule|tuned|any]
                  [--sample N] [--seed S] [--limit-seconds T] [--json FILE]

Needs torch and the standard library. Device time is taken as for the tuning (gen/timing.py); aten tries every algorithm
that cuDNN has. The floor is what the matrix units and the memory need at the rates that this very run measured. A
problem is a win or a loss against the faster of aten's two formats, for contiguous 2-D and 3-D inputs against aten's own;
what dispatch leaves to aten counts as 1. Losses are timed again in five alternating pairs, and the median stands.
`own` is the share of problems that lose nothing to aten in the format that they are asked in, which is what dispatch
weighs: it may not change a caller's format.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, median

import torch

from gen.admit import open_runtime
from gen.problems import ProblemError, entries_of
from gen.timing import HOT_FLOPS, Bench, aten_call, between, kernel_call, set_flags
from gen.tune import add_problem_arguments, chosen, describe

LOSS, PAIRS = 0.97, 5
LEAST_US = 2.0          # no launch is faster: the floor's floor
MATRIX = {"f16": 8192, "bf16": 8192, "tf32": 8192, "f32": 4096}
COPY_BYTES = 4 << 30
OTHER = {"contiguous": "channels_last", "channels_last": "contiguous"}


def main(arguments=None) -> int:
    """Measure and print; 1 where the problem files cannot be read, 2 without a GPU."""
    args = parse_arguments(arguments)
    if not torch.cuda.is_available():
        print("bench needs a GPU: torch.cuda.is_available() is False here", file=sys.stderr)
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
        rows = run(Runner(runtime, library, args), entries, args.limit_seconds)
    found = {"session": describe(runtime), "rates": rates(sorted({r["dtype"] for r in rows})), "tier": args.tier, "problems": rows}
    add_floors(found)
    found["summary"] = summary(rows)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    print(render(found))
    return 0


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure dispatch beside aten on this GPU.")
    add_problem_arguments(parser)
    parser.add_argument("--tier", choices=("rule", "tuned", "any"), default="any",
                        help="rule: as if nothing were tuned; tuned: only problems that are")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="start no problem after this")
    parser.add_argument("--json", type=Path, help="write every figure here")
    return parser.parse_args(arguments)


def run(runner, entries: list, limit: float) -> list[dict]:
    """A row for each problem until the limit."""
    rows, start = [], time.monotonic()
    for number, entry in enumerate(entries):
        if time.monotonic() - start > limit:
            break
        print(f"\r{number}/{len(entries)} problems", end="", file=sys.stderr, flush=True)
        try:
            rows += runner.measure(entry)
        except RuntimeError as error:  # out of memory, or aten has no algorithm: said, and left out
            print(f"\n{entry.key}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.cuda.empty_cache()
    print(file=sys.stderr)
    return rows


class Runner:
    """Measures problems one by one."""

    def __init__(self, runtime, library, args):
        self.runtime, self.library, self.tier, self.bench = runtime, library, args.tier, Bench()

    def measure(self, entry) -> list[dict]:
        """The row of one problem; none when --tier leaves it out."""
        if self.tier == "tuned" and self.library.tuning.winner(entry.problem) is None:
            return []
        choice = self.library.choose(entry.problem, tuned=self.tier != "rule")
        set_flags(entry.problem)
        row = {"key": entry.key, "op": entry.op, "group": entry.group, "dtype": entry.problem.arithmetic, "tier": choice.tier,
               "variant": choice.artifact.variant if choice.artifact else "aten", "flops": entry.problem.flops,
               "bytes": entry.problem.bytes}
        row["aten_other_us"] = self.other_format(entry)
        tensors = self.bench.tensors(entry.problem)
        aten = aten_call(entry, tensors)
        row["aten_us"] = self.time(entry, aten, tensors)
        ours = kernel_call(self.runtime, choice.artifact, entry.problem, tensors, self.bench.stream) if choice.artifact else None
        row["ours_us"] = self.time(entry, ours, tensors) if ours else row["aten_us"]
        row["ratio"] = self.ratio(entry, row, ours, tensors) if ours else 1.0
        row["own_ratio"] = max(row["ratio"], row["aten_us"] / row["ours_us"]) if ours else 1.0
        return [row]

    def time(self, entry, call, tensors) -> float:
        return self.bench.measure(call, len(tensors), entry.problem.flops > HOT_FLOPS).us

    def other_format(self, entry) -> float | None:
        """aten's time in the other memory format, where the problem may be asked in it."""
        format = entry.row["format"]
        if entry.row.get("strides") or (format == "contiguous" and entry.problem.rank > 1):
            return None
        other = next(e for e in entries_of({**entry.row, "format": OTHER[format]}) if e.kind == entry.kind)
        tensors = self.bench.tensors(other.problem)
        return self.time(entry, aten_call(other, tensors), tensors)

    def ratio(self, entry, row: dict, ours, tensors) -> float:
        """aten's best over ours; a loss is measured again in pairs, each of which goes to aten first."""
        best = min(row["aten_us"], row["aten_other_us"] or math.inf)
        if best / row["ours_us"] >= LOSS:
            return best / row["ours_us"]
        other, sets = aten_call(entry, tensors), tensors
        if best < row["aten_us"]:
            other, sets = self.call_of_other_format(entry)
        ratios = [self.time(entry, other, sets) / self.time(entry, ours, tensors) for _ in range(PAIRS)]
        return median(ratios)

    def call_of_other_format(self, entry):
        """The call, on memory of its own: the problem's tensors are still in use."""
        e = next(e for e in entries_of({**entry.row, "format": OTHER[entry.row["format"]]}) if e.kind == entry.kind)
        tensors = Bench().tensors(e.problem)
        return aten_call(e, tensors), tensors


def rates(dtypes) -> dict[str, float]:
    """FLOP and bytes a microsecond: of torch.mm in each arithmetic, on random numbers, and of a large copy."""
    found = {dtype: matmul_rate(dtype) for dtype in dtypes}
    source = torch.empty(COPY_BYTES // 4, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    found["copy"] = 2 * COPY_BYTES / median(between(lambda: target.copy_(source)) for _ in range(7))
    return found


def matmul_rate(dtype: str) -> float:
    size = MATRIX[dtype]
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}.get(dtype, torch.float32)
    a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
    torch.mm(a, b)
    return 2 * size**3 / median(between(lambda: torch.mm(a, b)) for _ in range(9))


def add_floors(found: dict):
    """What each problem needs at least: its arithmetic or its bytes, whichever takes longer."""
    for row in found["problems"]:
        row["floor_us"] = max(row["flops"] / found["rates"][row["dtype"]], row["bytes"] / found["rates"]["copy"], LEAST_US)


def summary(rows: list[dict]) -> dict:
    """Figures by (op, group), and over all: every problem alike, and every group alike."""
    groups = defaultdict(list)
    for row in rows:
        groups[f"{row['op']} {row['group']}"].append(row)
    by_group = {name: figures(groups[name]) for name in sorted(groups)}
    equal = geometric_mean(f["geomean"] for f in by_group.values()) if by_group else 1.0
    return {"groups": by_group, "all": figures(rows), "equal_groups": equal}


def figures(rows: list[dict]) -> dict:
    ratios = [row["ratio"] for row in rows] or [1.0]
    over = lambda name: geometric_mean(row[name] / row["floor_us"] for row in rows) if rows else 1.0
    for row in rows:
        row["aten_best_us"] = min(row["aten_us"], row["aten_other_us"] or math.inf)
    return {
        "problems": len(rows), "kernels": sum(row["variant"] != "aten" for row in rows),
        "aten_over_floor": over("aten_best_us"), "ours_over_floor": over("ours_us"),
        "geomean": geometric_mean(ratios), "worst": min(ratios),
        "wins": sum(r > 1 for r in ratios) / len(ratios), "no_loss": share(ratios), "own_no_loss": share([row["own_ratio"] for row in rows]),
    }


def share(ratios: list[float]) -> float:
    """Of those that are no loss."""
    return sum(r >= LOSS for r in ratios) / max(len(ratios), 1)


def render(found: dict) -> str:
    """The summary as text."""
    lines = [f"{'':28}{'n':>5}{'kernels':>8}{'aten/floor':>11}{'ours/floor':>11}{'geomean':>9}{'worst':>7}{'>1':>6}{'>=0.97':>8}{'own':>8}"]
    for name, f in [*found["summary"]["groups"].items(), ("all", found["summary"]["all"])]:
        lines.append(f"{name:28}{f['problems']:5}{f['kernels']:8}{f['aten_over_floor']:11.2f}{f['ours_over_floor']:11.2f}"
                     f"{f['geomean']:9.3f}{f['worst']:7.2f}{f['wins']:6.0%}{f['no_loss']:8.1%}{f['own_no_loss']:8.1%}")
    lines.append(f"equal groups: {found['summary']['equal_groups']:.3f}; rates: " + ", ".join(
        f"{name} {rate * 1e-6:.3g} T/s" for name, rate in found["rates"].items()))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
