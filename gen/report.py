"""What a build made: sizes and admissions by target."""

import json
from dataclasses import dataclass
from pathlib import Path

from gen.plan import BudgetError, Plan


@dataclass(frozen=True)
class Built:
    """One target's pack and table."""

    target: str
    artifacts: int
    dropped: int
    size: int            # bytes of the pack
    compressed: int      # as zlib leaves it in a wheel
    admitted: int

    def __str__(self) -> str:
        return (f"{self.target:8} {self.artifacts:4} artifacts, {self.dropped} dropped, {self.size / 1e6:.2f} MB "
                f"({self.compressed / 1e6:.2f} MB compressed), admitted {self.admitted} of {self.artifacts}")


def read_built(out: Path, target: str) -> Built:
    """Facts of a target that was built."""
    sizes = json.loads((out / "packs" / f"{target}.json").read_text())
    table = out / "tables" / f"{target}.json"
    admitted = len(json.loads(table.read_text())["admitted"]) if table.exists() else 0
    return Built(target, sizes["artifacts"], sizes["dropped"], sizes["bytes"], sizes["compressed"], admitted)


def report(out: Path, targets: list[str], say=print) -> list[Built]:
    """Print a line for each target, and one for all of them."""
    built = [read_built(out, target) for target in targets]
    for row in built:
        say(str(row))
    say(f"{len(built)} targets, {sum(b.size for b in built) / 1e6:.1f} MB, "
        f"{sum(b.compressed for b in built) / 1e6:.1f} MB compressed")
    return built


def check_size(plan: Plan, built: list[Built]):
    """Raise BudgetError when a pack came out larger than the matrix allows."""
    limit = plan.matrix.budgets.megabytes
    if large := [f"{b.target}: {b.size / 1e6:.2f} MB > the budget of {limit:.6g} MB" for b in built if b.size > limit * 1e6]:
        raise BudgetError(f"{plan.matrix.path}: {'; '.join(large)}: ship fewer configs, or raise [budgets]")
