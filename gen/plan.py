"""Variants -> plan: what would be built, and what it would cost, before anything is compiled."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from aotconv.target import Target
from gen.matrix import Matrix, MatrixError
from gen.rules import reject_for, select, variants_for
from gen.variants import Kernel, Variant

# Seconds of one core and kilobytes for one artifact: means of a full build of forward kernels on an x86-64 machine.
COST = {
    "sm_80": (0.6, 30.0), "sm_86": (0.6, 32.0), "sm_89": (0.6, 32.0), "sm_90a": (0.7, 33.0), "sm_100a": (0.8, 49.0),
    "sm_120a": (0.7, 42.0), "gfx90a": (0.4, 15.0), "gfx942": (0.4, 15.0), "gfx950": (0.5, 23.0), "gfx1100": (0.7, 28.0),
}
START_SECONDS = 0.9          # of each compile edge: Python, and the import of Triton
LIGHT_SECONDS = 0.3          # of an edge that compiles no kernel


class BudgetError(MatrixError):
    """More than the matrix's budgets allow: says what, how much, and the limit."""


@dataclass(frozen=True)
class Estimate:
    """What one target costs."""

    artifacts: int
    megabytes: float
    cpu_seconds: float


@dataclass(frozen=True)
class Plan:
    """Everything that will be built, in order, and everything that will not, with its reason. `variants` are those of
    any target; what one target gets is `variants_for(target)`."""

    matrix: Matrix
    variants: tuple[Variant, ...]
    rejected: tuple[tuple[Variant, str], ...]

    @cached_property
    def kernels(self) -> dict[Kernel, tuple[Variant, ...]]:
        """Kernels in order, each with its variants."""
        return by_kernel(self.variants)

    def variants_for(self, target: Target) -> tuple[Variant, ...]:
        """What one target gets, in order."""
        return variants_for(self.matrix, target)

    def kernels_for(self, target: Target) -> dict[Kernel, tuple[Variant, ...]]:
        """The target's kernels in order, each with its variants."""
        return by_kernel(self.variants_for(target))

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.matrix.targets

    def estimate(self, target: Target) -> Estimate:
        seconds, kilobytes = COST[target.name]
        count = len(self.variants_for(target))
        return Estimate(count, count * kilobytes / 1000, count * seconds + len(self.kernels_for(target)) * START_SECONDS)


def by_kernel(variants: tuple[Variant, ...]) -> dict[Kernel, tuple[Variant, ...]]:
    """Kernels in order, each with its variants."""
    found = {}
    for v in variants:
        found.setdefault(v.kernel, []).append(v)
    return {kernel: tuple(listed) for kernel, listed in found.items()}


def make_plan(matrix: Matrix) -> Plan:
    """The plan of a matrix."""
    return Plan(matrix, *select(matrix))


def edge_seconds(target: Target, variants: int) -> float:
    """Estimated seconds of one compile edge."""
    return START_SECONDS + COST[target.name][0] * variants


def count_by(variants) -> dict[str, Counter]:
    """Variants by each axis."""
    axes = {"op": lambda v: v.kernel.op, "rank": lambda v: str(v.kernel.rank), "layout": lambda v: v.kernel.layout,
            "dtype": lambda v: v.dtype, "kernel": lambda v: v.kernel.name}
    return {axis: Counter(map(of, variants)) for axis, of in axes.items()}


def over_budget(plan: Plan) -> list[str]:
    """What exceeds the budgets, a sentence each."""
    return [
        f"{target.name}: an estimated {used:.6g} {name} > the budget of {allowed:.6g}"
        for target in plan.targets
        for name, used, allowed in limits(plan.estimate(target), plan.matrix)
        if used > allowed
    ]


def limits(estimate: Estimate, matrix: Matrix):
    for name in ("artifacts", "megabytes", "cpu_seconds"):
        yield name.replace("_", " "), getattr(estimate, name), getattr(matrix.budgets, name)


def check_budgets(plan: Plan):
    """Raise BudgetError when the plan exceeds a budget."""
    if faults := over_budget(plan):
        raise BudgetError(f"{plan.matrix.path}: {'; '.join(faults)}: ship fewer configs, or raise [budgets]")


def render_rejected(plan: Plan) -> str:
    """rejected.tsv: every candidate that is not built, for any target or for one, and why."""
    rows = [(v, reason) for v, reason in plan.rejected]
    rows += [(v, reason) for t in plan.targets for v in plan.variants if (reason := reject_for(v, t, plan.matrix))]
    return "variant\treason\n" + "".join(f"{v.name}\t{reason}\n" for v, reason in rows)
