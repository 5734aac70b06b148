"""Random convolutions through the operators in strict mode, each judged against float64, failures shrunk.

    python -m gen fuzz [--count 20000] [--seed 0] [--limit-seconds S] [--unadmitted] [--json OUT]

Needs a GPU, torch and the standard library. All ops, ranks, sizes 1..70, kernels 1..9, strides, paddings, dilations,
groups, formats, offsets, dtypes; at most 1 GFLOP and 64 MB each. A seed names a problem for ever.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path

MAX_FLOPS, MAX_BYTES, MAX_TAPS = 1e9, 64e6, 400
LARGEST = {1: 70, 2: 70, 3: 24}


def main(arguments=None) -> int:
    """Run; 1 when any problem is wrong."""
    args = parse_arguments(arguments)
    os.environ["AOTCONV_MODE"] = "strict"
    if args.unadmitted:
        os.environ["AOTCONV_UNADMITTED"] = "1"
    outcome = run_all(range(args.seed, args.seed + args.count), args.limit_seconds)
    print(f"{outcome['problems']} problems, {outcome['results']} results in {outcome['seconds']} s, {len(outcome['failures'])} "
          f"failures, worst {outcome['worst']:.3f} of the bound; {dict(outcome['ops'])}")
    for failure in outcome["failures"][:20]:
        print(failure)
    if args.json:
        args.json.write_text(json.dumps(outcome, indent=1) + "\n")
    return int(bool(outcome["failures"]))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m gen fuzz", description="Random convolutions on this GPU.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--unadmitted", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def run_all(seeds, limit: float) -> dict:
    """Counts, the worst error, and each failure with the smallest problem that still fails."""
    outcome = {"problems": 0, "results": 0, "worst": 0.0, "failures": [], "ops": Counter(), "kernels": Counter()}
    started = time.monotonic()
    for seed in seeds:
        if time.monotonic() - started > limit:
            break
        problem = random_exercise(seed)
        fault, verdicts = attempt(problem)
        outcome["problems"] += 1
        outcome["results"] += len(verdicts)
        for verdict in verdicts:
            outcome["ops"][verdict.op] += 1
            outcome["kernels"][(verdict.variant or "none").split("-")[0]] += 1
            outcome["worst"] = max(outcome["worst"], verdict.error)
        if fault:
            outcome["failures"].append(f"seed {seed}: {fault}: {shrink(problem)}")
            print(outcome["failures"][-1], file=sys.stderr)
    outcome["seconds"] = round(time.monotonic() - started, 1)
    return outcome


def attempt(problem):
    """(what is wrong or None, verdicts); nothing is wrong with a call that has no output."""
    from gen.exercise import exercise

    if not has_output(problem):
        return None, []

    try:
        verdicts = exercise(problem)
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:300]}", []
    return next((f"{v.op} {v.variant}: {v.fault}" for v in verdicts if v.fault), None), verdicts


def random_exercise(seed: int):
    """The problem of a seed."""
    rng = random.Random(seed)
    while True:
        problem = draw(rng, seed)
        if has_output(problem) and fits(problem):
            return problem


def draw(rng: random.Random, seed: int):
    """One draw, with an output or without."""
    from gen.exercise import Exercise

    rank = rng.choice((1, 2, 2, 3))
    many = lambda choose: tuple(choose() for _ in range(rank))
    kernel = many(lambda: rng.choice((1, 1, 2, 3, 3, 3, 4, 5, 7, 9)))
    stride, dilation = many(lambda: rng.choice((1, 1, 1, 2, 2, 3, 4))), many(lambda: rng.choice((1, 1, 1, 2, 3)))
    padding = many(lambda: rng.randint(0, 4))
    spatial = many(lambda: rng.randint(1, LARGEST[rank]))
    groups, C_in, C_out = channels(rng)
    transposed = rng.random() < 0.25
    extra = tuple(rng.randrange(max(s, d)) if rng.random() < 0.3 else 0 for s, d in zip(stride, dilation)) if transposed else ()
    w = (C_in * groups, C_out, *kernel) if transposed else (C_out * groups, C_in, *kernel)
    return Exercise(
        (rng.choice((1, 1, 2, 3, 5)), C_in * groups, *spatial), w, stride, padding, dilation, transposed, extra, groups,
        bias=rng.random() < 0.4, mask=rng.choice((None, None, (True, False), (False, True), (True, True))),
        dtype=rng.choice(("f16", "bf16", "bf16", "f32", "tf32")), offset=rng.choice((0, 0, 0, 1, 3, 8)),
        format=rng.choice(("contiguous", "channels_last", "channels_last", "sliced")), integers=rng.random() < 0.5, seed=seed,
    )


def has_output(problem) -> bool:
    """Whether every size of the output is positive."""
    from aotconv.problem import output_size, transposed_size

    numbers = (problem.x[2:], problem.w[2:], problem.stride, problem.padding, problem.dilation)
    if problem.transposed:
        return min(map(transposed_size, *numbers, problem.output_padding)) > 0
    return min(map(output_size, *numbers)) > 0


def channels(rng: random.Random):
    """(groups, channels in and out of a group): dense, grouped and depthwise; multiples of a vector and not."""
    size = lambda: rng.choice((1, 2, 3, 4, 7, 8, 16, 17, 24, 31, 32, 40, 64, 65, 96, 130))
    kind = rng.random()
    if kind < 0.25:
        return rng.choice((1, 2, 7, 8, 16, 24, 32, 65, 72)), 1, rng.choice((1, 1, 1, 2, 3))
    return (1 if kind < 0.75 else rng.choice((2, 3, 4, 5))), size(), size()


def fits(problem) -> bool:
    """Within the limits on work and memory."""
    scale = prod(problem.stride) if problem.transposed else 1
    work = 2 * prod(problem.x) // problem.x[1] * scale * prod(problem.w)
    return work <= MAX_FLOPS and prod(problem.x) * scale * 4 <= MAX_BYTES and prod(problem.w[2:]) <= MAX_TAPS


def shrink(problem):
    """The smallest problem found that still fails: one change at a time, as long as any helps."""
    improved = True
    while improved:
        improved = False
        for smaller in reductions(problem):
            if attempt(smaller)[0]:
                problem, improved = smaller, True
                break
    return problem


def reductions(p):
    """Simpler problems of the same kind."""
    rank = len(p.stride)
    for change in (dict(bias=False), dict(offset=0), dict(format="contiguous"), dict(x=(1, *p.x[1:])), dict(integers=True),
                   dict(stride=(1,) * rank), dict(dilation=(1,) * rank), dict(padding=(0,) * rank)):
        if any(getattr(p, name) != value for name, value in change.items()) and not (p.transposed and p.output_padding):
            yield replace(p, **change)
    for d in range(rank):
        for size in (1, 2, p.x[2 + d] // 2, p.x[2 + d] - 1):
            if 0 < size < p.x[2 + d]:
                yield replace(p, x=(*p.x[: 2 + d], size, *p.x[3 + d :]))


if __name__ == "__main__":
    sys.exit(main())
