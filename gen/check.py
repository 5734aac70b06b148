"""Every distinct call of problem files through the operators in strict mode, each judged against float64.

    python -m gen check PROBLEMS.jsonl ... [--dtype bf16] [--format channels_last] [--share K/N] [--limit-seconds S] [--json OUT]

Needs a GPU, torch and the standard library. Rows as in shapes/README.md; a backward row is checked by its mask.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

MEMORY_LIMIT = 60e9  # bytes of one call's tensors in the dtype


def main(arguments=None) -> int:
    """Print a summary; 1 when any result is wrong."""
    args = parse_arguments(arguments)
    os.environ["AOTCONV_MODE"] = "strict"
    if args.unadmitted:
        os.environ["AOTCONV_UNADMITTED"] = "1"
    calls = [call for path in args.problems for call in read_calls(path, args.dtype, args.format)]
    part, parts = map(int, args.share.split("/"))
    calls = list(dict.fromkeys(calls))[part::parts]
    outcome = run_all(calls, args.limit_seconds)
    print(summary(outcome, len(calls)))
    if args.json:
        args.json.write_text(json.dumps(outcome, indent=1) + "\n")
    return int(bool(outcome["wrong"]))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m gen check", description="Check real calls on this GPU.")
    parser.add_argument("problems", type=Path, nargs="+")
    parser.add_argument("--dtype", default="bf16", choices=("f16", "bf16", "f32", "tf32"))
    parser.add_argument("--format", default="channels_last", choices=("contiguous", "channels_last"))
    parser.add_argument("--share", default="0/1", help="K/N: every N-th call, from the K-th")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--unadmitted", action="store_true", help="let artifacts without records serve")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def read_calls(path: Path, dtype: str, format: str):
    """The rows as exercises."""
    from gen.exercise import Exercise

    for line in path.read_text().splitlines():
        row = json.loads(line)
        lists = {key: tuple(row[key]) for key in ("x", "w", "stride", "padding", "dilation", "output_padding")}
        mask = tuple(row["output_mask"][:2]) if row["op"] == "convolution_backward" else None
        yield Exercise(**lists, transposed=row["transposed"], groups=row["groups"], bias=row["bias"] and mask is None,
                       mask=mask, dtype=row.get("dtype", dtype), format=row.get("format", format))


def run_all(calls, limit: float) -> dict:
    """Counts by op and variant, the worst error, and every wrong or raising call."""
    import torch

    from aotconv.runtime import AotconvError
    from gen.exercise import exercise

    outcome = {"checked": Counter(), "variants": Counter(), "worst": 0.0, "raised": Counter(), "skipped": Counter(), "wrong": []}
    started = time.monotonic()
    for number, call in enumerate(calls):
        if time.monotonic() - started > limit:
            outcome["skipped"]["time"] += len(calls) - number
            break
        if footprint(call) > MEMORY_LIMIT:
            outcome["skipped"]["memory"] += 1
            continue
        try:
            verdicts = exercise(call)
        except (AotconvError, torch.OutOfMemoryError, RuntimeError) as error:
            outcome["raised"][f"{type(error).__name__}: {str(error).splitlines()[0][:300]} {call}"] += 1
            continue
        for verdict in verdicts:
            outcome["checked"][verdict.op] += 1
            outcome["variants"][f"{verdict.op} {verdict.variant}"] += 1
            outcome["worst"] = max(outcome["worst"], verdict.error)
            if verdict.fault:
                outcome["wrong"].append(f"{verdict.op} {verdict.variant}: {verdict.fault}: {call}")
                print(outcome["wrong"][-1], file=sys.stderr)
    outcome["seconds"] = round(time.monotonic() - started, 1)
    return outcome


def footprint(call) -> float:
    """Bytes of the tensors, roughly: input, weight, output; float32 copies are made of each while it is filled."""
    from math import prod

    from gen.exercise import DTYPES

    scale = prod(call.stride) if call.transposed else 1 / prod(call.stride)
    output = prod(call.x) / call.x[1] * (call.w[1] * call.groups if call.transposed else call.w[0]) * scale
    return (prod(call.x) + prod(call.w) + output) * (DTYPES[call.dtype].itemsize + 4)


def summary(outcome: dict, total: int) -> str:
    lines = [f"{total} distinct calls, {outcome['seconds']} s; checked {dict(outcome['checked'])}, "
             f"wrong {len(outcome['wrong'])}, worst {outcome['worst']:.3f} of the bound, skipped {dict(outcome['skipped'])}"]
    lines += [f"raised {count}: {what}" for what, count in outcome["raised"].most_common(8)]
    lines += [f"WRONG {line}" for line in outcome["wrong"][:20]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
