"""Timing records -> models/<target>.json: the cost of each variant and aten's time, as weights of features.

    python -m gen fit [--target T] [--out DIR] [--records DIR] [--models DIR] [--judge PROBLEMS.jsonl ...]

Needs numpy and the packs that were timed. The model: log us = weights . features(problem) (aotconv/tuning.py), for a
variant with the logarithm of its family's own estimate as one more feature. Weights are ridge regressions on two
levels: all variants of a kernel's layout around the estimate itself, then each variant around those; all problems of an
op, memory format and kind of arithmetic, then each class and rank around those. A class's margin says by how much a
kernel must be expected to beat aten before it is chosen: the one that gains most in cross-validation, where losses
count more than gains.

--judge fits on half of the *models* that the problem files name and prints how the choices fare on the other half.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from aotconv.families import family
from aotconv.pack import Pack, PackError
from aotconv.tuning import ATEN, FEATURES, cost_name, features, group_of
from gen.files import write_if_changed
from gen.problems import ProblemError, problem_from, read_problems
from gen.table import MODEL_FORMAT, MODELS
from gen.timings import TimingError, read_sessions, read_timings

POOLED, OWN = 1.0, 6.0          # ridges: of a level's first fit, and of a part's departure from it
FOLDS = 5
MARGINS = (-0.05, 0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 9.0)   # of logarithms; the last is never
LOSS, LOSS_WEIGHT = log(0.97), 6.0
BORROWED = 8.0                  # problems of its pool that weigh on a group's margin
DIGITS = 4


@dataclass(frozen=True)
class Measured:
    """What was measured on one problem: aten's logarithm of microseconds, and (artifact, estimate, logarithm) of variants."""

    key: str
    problem: object
    seen: tuple[float, ...]
    group: str
    aten: float
    variants: tuple

    @property
    def pool(self) -> str:
        return pool_of(self.group)

    @property
    def best(self) -> float:
        return min(us for _, _, us in self.variants)


def pool_of(group: str) -> str:
    """Groups that share what they know: those of one op, memory format and kind."""
    op, _, _, memory, kind = group.split()
    return f"{op} {memory} {kind}"


def main(arguments=None) -> int:
    args = parse_arguments(arguments)
    try:
        measured = read_measured(args.records / args.target, Pack(args.out / "packs" / f"{args.target}.pack"))
        if args.judge:
            print(judge(measured, models_of(args.judge)))
            return 0
    except (TimingError, ProblemError, PackError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    path = args.models / f"{args.target}.json"
    before = json.loads(path.read_text())["problems"] if path.exists() else 0
    if before > len(measured) and not args.fewer:
        print(f"error: {path} was fitted to {before} problems, the records and packs here have {len(measured)}; tune again, or say --fewer",
              file=sys.stderr)
        return 1
    write_if_changed(path, render_models(fit(measured), args.target, len(measured)))
    print(f"{path}: {len(measured)} problems")
    return 0


def parse_arguments(arguments):
    here = Path(__file__)
    parser = argparse.ArgumentParser(prog="python -m gen fit", description="Fit the cost models to timing records.")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--out", type=Path, default=Path("generated"), help="the build folder whose packs were timed")
    parser.add_argument("--records", type=Path, default=here.with_name("records"))
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--fewer", action="store_true", help="replace models that were fitted to more problems")
    parser.add_argument("--judge", type=Path, nargs="+", metavar="PROBLEMS", help="fit on half of the models of these files, judge on the rest")
    return parser.parse_args(arguments)


# --- records ---------------------------------------------------------------------------------------------------------


def read_measured(folder: Path, pack: Pack) -> list[Measured]:
    """Every problem on which aten and a variant of the pack were timed."""
    sessions = read_sessions(folder / "sessions.tsv")
    artifacts = {a.variant: (a, family(a.kernel), family(a.kernel).prepare(a)) for a in pack.artifacts}
    rows = defaultdict(list)
    for row in read_timings(folder / "timing.tsv"):
        rows[row.problem].append(row)
    found = [measured(rows[key], artifacts, int(sessions[rows[key][0].session]["multiprocessors"])) for key in sorted(rows)]
    return [m for m in found if m]


def measured(rows: list, artifacts: dict, multiprocessors: int) -> Measured | None:
    problem, times = problem_from(rows[0].problem), {row.candidate: row.us for row in rows}
    found = []
    for name, us in sorted(times.items()):
        if name in artifacts:
            artifact, kind, prepared = artifacts[name]
            found.append((artifact, kind.estimate_us(prepared, kind.shape_of(problem), multiprocessors), log(us)))
    if ATEN not in times or not found:
        return None
    return Measured(rows[0].problem, problem, features(problem, multiprocessors), group_of(problem), log(times[ATEN]), tuple(found))


# --- the fit ---------------------------------------------------------------------------------------------------------


def fit(measured: list[Measured]) -> dict:
    """The models of a target, margins from cross-validation within these very problems."""
    costs, aten = fit_costs(measured), fit_aten(measured)
    margins = fit_margins(held_out(measured))
    return {"costs": costs, "aten": {group: {"weights": w, "margin": margins[group]} for group, w in aten.items()}}


def ridge(x, y, strength: float):
    """Weights near 0 that explain y. Features are not centred: the first is 1, and is not held back."""
    penalty = np.full(x.shape[1], strength)
    penalty[0] = 1e-3 * strength
    return np.linalg.solve(x.T @ x + np.diag(penalty), x.T @ y)


def two_levels(rows: list) -> dict:
    """rows: (pool, part, features, value). part -> weights: those of its pool, and the part's own departure."""
    pools = defaultdict(list)
    for row in rows:
        pools[row[0]].append(row)
    found = {}
    for pool in sorted(pools):
        x, y = (np.array([row[i] for row in pools[pool]]) for i in (2, 3))
        scale = np.maximum(np.abs(x - x[:1]).max(0), 1.0)     # a feature that runs over a wide range is held back less
        common = ridge(x / scale, y, POOLED) / scale
        parts = np.array([row[1] for row in pools[pool]])
        for part in sorted(set(parts)):
            mine = parts == part
            own = ridge(x[mine] / scale, y[mine] - x[mine] @ common, OWN) / scale
            found[part] = [round(float(w), DIGITS + 2) for w in common + own]
    return found


def fit_costs(measured: list[Measured]) -> dict[str, list[float]]:
    """cost_name -> weights of the features, the last of the estimate's logarithm."""
    rows = []
    for m in measured:
        for artifact, estimate, us in m.variants:
            name = cost_name(artifact.variant)
            kernel, kind, _ = name.split("-")
            pool = "_".join(kernel.split("_")[:2]) + kind
            rows.append((pool, name, (*m.seen, log(estimate)), us - log(estimate)))
    return {name: [*w[:-1], w[-1] + 1] for name, w in two_levels(rows).items()}


def fit_aten(measured: list[Measured]) -> dict[str, list[float]]:
    """Group -> weights of the features."""
    return two_levels([(m.pool, m.group, m.seen, m.aten) for m in measured])


def expected(m: Measured, costs: dict, aten: dict):
    """(aten's, the best variant's expected logarithm, that variant's measured one); None where aten's is not known."""
    if m.group not in aten:
        return None
    predicted = []
    for artifact, estimate, us in m.variants:
        w = costs.get(cost_name(artifact.variant))
        predicted.append((log(estimate) if w is None else float(np.dot(w, (*m.seen, log(estimate)))), artifact.variant, us))
    best = min(predicted)
    return float(np.dot(aten[m.group], m.seen)), best[0], best[2]


def held_out(measured: list[Measured]) -> list[tuple[str, float, float]]:
    """(group, expected gain, gain) of each problem, by models that did not see it."""
    folds = list(range(len(measured)))
    random.Random(0).shuffle(folds)
    found = []
    for fold in range(FOLDS):
        seen = [measured[i] for i in folds if i % FOLDS != fold]
        costs, aten = fit_costs(seen), fit_aten(seen)
        for m in (measured[i] for i in folds if i % FOLDS == fold):
            outcome = expected(m, costs, aten)
            if outcome:
                found.append((m.group, outcome[0] - outcome[1], m.aten - outcome[2]))
    return found


def fit_margins(outcomes) -> dict[str, float]:
    """Group -> margin: what gains most there and, with less weight, in its pool."""
    groups, pools = defaultdict(list), defaultdict(list)
    for group, hoped, gained in outcomes:
        groups[group].append((hoped, gained))
        pools[pool_of(group)].append((hoped, gained))
    worth = lambda rows, margin: sum(value(gained) for hoped, gained in rows if hoped >= margin)
    choose = lambda g: max(MARGINS, key=lambda m: (worth(groups[g], m) + BORROWED * worth(pools[pool_of(g)], m) / len(pools[pool_of(g)]), m))
    return defaultdict(lambda: MARGINS[-1], {group: choose(group) for group in sorted(groups)})


def value(gained: float) -> float:
    """What a choice is worth: its gain in logarithms; a loss that anyone would see counts more."""
    return gained if gained > LOSS else LOSS_WEIGHT * gained


def render_models(models: dict, target: str, problems: int) -> str:
    """Sorted, a line for each variant and group."""
    lines = lambda part: ",\n".join(f'  {json.dumps(name)}: {json.dumps(part[name], sort_keys=True)}' for name in sorted(part))
    return (f'{{\n "aten": {{\n{lines(models["aten"])}\n }},\n "costs": {{\n{lines(models["costs"])}\n }},\n'
            f' "features": {json.dumps(FEATURES)},\n "format": {MODEL_FORMAT},\n "problems": {problems},\n "target": {json.dumps(target)}\n}}\n')


# --- the judgement ---------------------------------------------------------------------------------------------------


def models_of(paths) -> dict[str, set]:
    """Key -> names of the models that ask for it."""
    found = defaultdict(set)
    for e in read_problems(paths):
        found[e.key].add(e.row.get("model", ""))
    return found


def judge(measured: list[Measured], models: dict[str, set], seed: int = 0) -> str:
    """Fit on half of the models, choose for problems of the other half only, compare with what was measured."""
    names = sorted(set().union(*models.values()))
    random.Random(seed).shuffle(names)
    half = set(names[: len(names) // 2])
    seen = [m for m in measured if models.get(m.key, set()) & half]
    unseen = [m for m in measured if models.get(m.key) and not models[m.key] & half]
    fitted = fit(seen)
    rows = [(m.group, *fared(m, fitted)) for m in unseen]
    groups = defaultdict(list)
    for group, *row in rows:
        op, rank, kind, memory, dtype = group.split()
        groups[f"{op} {rank} {memory} {dtype}"].append(row)
        groups[f"{op} {kind}"].append(row)
    lines = [f"{len(seen)} problems fitted, {len(unseen)} of other models judged",
             f"{'':32}{'n':>5}{'kernels':>8}{'geomean':>9}{'tuned':>8}{'share':>7}{'>=0.97':>8}{'worst':>7}"]
    lines += [verdict(name, groups[name]) for name in sorted(groups)] + [verdict("all", [row for _, *row in rows])]
    return "\n".join(lines)


def fared(m: Measured, fitted: dict) -> tuple[bool, float, float]:
    """(a kernel was chosen, aten's time over the choice's, aten's over the best there is)."""
    weights = {group: model["weights"] for group, model in fitted["aten"].items()}
    outcome = expected(m, fitted["costs"], weights)
    tuned = max(m.aten - m.best, 0.0)
    if outcome is None or outcome[0] - outcome[1] < fitted["aten"][m.group]["margin"]:
        return False, 1.0, exp(tuned)
    return True, exp(m.aten - outcome[2]), exp(tuned)


def verdict(name: str, rows) -> str:
    ratios = [ratio for _, ratio, _ in rows]
    rule, tuned = geometric_mean(ratios), geometric_mean(tuned for *_, tuned in rows)
    return (f"{name:32}{len(rows):5}{sum(kernel for kernel, *_ in rows):8}{rule:9.3f}{tuned:8.3f}{rule / tuned:7.1%}"
            f"{sum(r >= 0.97 for r in ratios) / len(ratios):8.1%}{min(ratios):7.2f}")


if __name__ == "__main__":
    sys.exit(main())
