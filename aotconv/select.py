"""Which artifact serves a problem: a pure function of the problem, the pack, the table and the device.

Standard library only. "Applies" is a set of constraints, plain data that the build rendered; "is better" is a cost.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from aotconv.cost import GemmShape, estimate_us
from aotconv.pack import Artifact, Pack
from aotconv.problem import Problem
from aotconv.target import Device

INT32 = range(-(2**31), 2**31)
GRID_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Choice:
    """What serves a problem. `artifact` is None for aten. reasons: (tier, why it did not answer, or why it did)."""

    tier: str
    artifact: Artifact | None
    reasons: tuple[tuple[str, str], ...] = ()


class Library:
    """One target's artifacts, ready to be asked; `admitted` maps a variant to the SHA-256 that passed on a device."""

    def __init__(self, pack: Pack, kernels: dict, admitted: dict, device: Device, unadmitted: bool = False):
        self.pack, self.kernels, self.admitted, self.device = pack, kernels, admitted, device
        self.unadmitted = unadmitted

    @cached_property
    def families(self) -> dict:
        """(op, rank, dtype) -> kernel name -> usable artifacts: few enough to look at each."""
        found = defaultdict(lambda: defaultdict(list))
        for artifact in self.pack.artifacts:
            if artifact.kernel in self.kernels and self.usable(artifact) is None:
                op, rank, _ = self.kernels[artifact.kernel]
                found[op, rank, artifact.dtype][artifact.kernel].append(artifact)
        return found

    def is_admitted(self, artifact: Artifact) -> bool:
        """Whether these very bytes passed the numerical test on a device of this target."""
        return self.admitted.get(artifact.variant) == artifact.sha256

    def usable(self, artifact: Artifact) -> str | None:
        """Why this device may not run the artifact at all; None when it may."""
        if artifact.shared > self.device.shared_limit:
            return f"needs {artifact.shared} bytes of shared memory, the device has {self.device.shared_limit}"
        if not (self.unadmitted or self.is_admitted(artifact)):
            return "not admitted: no record that these bytes passed on this target (AOTCONV_UNADMITTED=1 uses it all the same)"
        return None

    def applies(self, problem: Problem, kernel: str, artifact: Artifact) -> str | None:
        """Why the kernel cannot take the problem; None when it can. Depends on kernel and dtype alone, not on the tile."""
        values = problem.values
        for name, relation, bound in self.kernels[kernel][2]:
            if not holds(values[name], relation, bound):
                return f"{name} = {values[name]}, must be {relation} {bound}"
        for argument in artifact.arguments:
            if argument.kind == "scratch":
                continue
            value = argument_value(argument.name, values)
            if argument.divisible > 1 and value % argument.divisible:
                return f"{argument.name} = {value}, must be a multiple of {argument.divisible}"
            if argument.kind == "i32" and value not in INT32:
                return f"{argument.name} = {value} does not fit 32 bits"
        return None

    def ranked(self, problem: Problem):
        """(estimated microseconds, kernel, artifact) of every applicable artifact, best first; ties by name."""
        rows = []
        dtype = "tf32" if problem.dtype == "f32" and problem.tf32 else problem.dtype
        shape = GemmShape(problem.op, problem.values)
        for kernel, artifacts in self.families.get((problem.op, problem.rank, dtype), {}).items():
            if self.applies(problem, kernel, artifacts[0]) is None:
                layout = kernel.split("_")[1]
                rows += [(estimate_us(a, layout, problem.values, shape, self.device.multiprocessors, problem.bytes), kernel, a)
                         for a in artifacts if programs(a, shape) <= GRID_LIMIT]
        return sorted(rows, key=lambda row: (row[0], row[2].variant))

    def choose(self, problem: Problem) -> Choice:
        """The tier that answers. Without timing records, applicable variants serve."""
        rows = self.ranked(problem)
        specific = [row for row in rows if not row[1].endswith("_i64")]
        if specific:
            cost, _, artifact = specific[0]
            return Choice("rule", artifact, (("tuned", "the table has no tuned entry for this problem"),
                                             ("rule", f"best of {len(specific)} applicable variants, about {cost:.1f} us")))
        if rows:
            return Choice("generic", rows[0][2], (("tuned", "the table has no tuned entry for this problem"),
                                                  ("rule", self.refusals(problem)), ("generic", "takes every size and stride")))
        return Choice("aten", None, (("tuned", "the table has no tuned entry for this problem"),
                                     ("rule", self.refusals(problem)), ("generic", "no generic variant is usable")))

    def refusals(self, problem: Problem) -> str:
        """Why each kernel of this op, rank and dtype does not serve, in one line."""
        dtype = "tf32" if problem.dtype == "f32" and problem.tf32 else problem.dtype
        lines, seen = [], set()
        for artifact in self.pack.artifacts:
            op, rank, _ = self.kernels.get(artifact.kernel, (None, None, None))
            if (op, rank, artifact.dtype) != (problem.op, problem.rank, dtype) or artifact.kernel in seen:
                continue
            reason = self.usable(artifact) or self.applies(problem, artifact.kernel, artifact)
            if reason:
                seen.add(artifact.kernel)
                lines.append(f"{artifact.kernel}: {reason}")
        return "; ".join(lines) or f"no variant is built for {problem.op}, rank {problem.rank}, {dtype}"


def holds(value: int, relation: str, bound) -> bool:
    """One constraint."""
    if relation == "in":
        return value in bound
    if relation == "<=":
        return value <= bound
    if relation == "==":
        return value == bound
    raise ValueError(f"unknown relation {relation!r} in the dispatch module; install packs and runtime from one wheel")


def argument_value(name: str, values: dict) -> int:
    """What dispatch knows of an argument: a pointer's alignment, an integer's value; tile counts come later."""
    if name.endswith("_ptr"):
        return values.get(f"{name[0]}_align", 0)
    return values.get(name, 0)


def programs(artifact: Artifact, shape: GemmShape) -> int:
    """Size of the flat grid."""
    tile = artifact.tile
    return -(-shape.rows // tile["BLOCK_M"]) * -(-shape.columns // tile["BLOCK_N"]) * shape.groups
