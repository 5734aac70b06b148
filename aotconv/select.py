"""Which artifact serves a problem: a pure function of the problem, the pack, the table and the device.

Standard library only. "Applies" is a set of constraints, plain data that the build rendered; "is better" is a cost.
"""

import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from aotconv.families import family
from aotconv.pack import Artifact, Pack
from aotconv.plan import WORKSPACE_POINTERS
from aotconv.problem import Problem
from aotconv.target import Device
from aotconv.tuning import ATEN, Tuning, corrected, features

INT32_MAX = 2**31 - 1
GRID_LIMIT = 2**31 - 1
RELATIONS = {
    "==": operator.eq, "<=": operator.le, ">=": operator.ge,
    "in": lambda value, bound: value in bound, "a multiple of": lambda value, bound: value % bound == 0,
}


@dataclass(frozen=True)
class Choice:
    """What serves a problem. `artifact` is None for aten. `why` makes the reasons, which plans do not need."""

    tier: str
    artifact: Artifact | None
    why: Callable[[], tuple] = field(default=tuple, compare=False)

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """(tier, why it did not answer, or why it did)."""
        return self.why()


class Library:
    """One target's artifacts, ready to be asked. admitted: variant -> the SHA-256 that passed on a device; table: what
    was measured, if anything."""

    def __init__(self, pack: Pack, kernels: dict, admitted: dict, device: Device, unadmitted: bool = False, table: dict | None = None):
        self.pack, self.kernels, self.admitted, self.device = pack, kernels, admitted, device
        self.unadmitted, self.tuning = unadmitted, Tuning(table or {}, device.multiprocessors)
        self.demands = {}  # what kernels ask of a problem -> its number: many ask the same

    @cached_property
    def candidates(self) -> dict:
        """(op, rank, dtype) -> the kernels that may serve it: few enough to ask each."""
        found = defaultdict(dict)
        for artifact in self.pack.artifacts:
            if artifact.kernel in self.kernels and self.usable(artifact) is None:
                op, rank, _ = self.kernels[artifact.kernel]
                kernels = found[op, rank, artifact.dtype]
                if artifact.kernel not in kernels:
                    kernels[artifact.kernel] = self.candidate(artifact)
                known = (artifact, family(artifact.kernel).prepare(artifact), self.tuning.weights(artifact.variant))
                kernels[artifact.kernel].artifacts.append(known)
        return {key: tuple(kernels.values()) for key, kernels in found.items()}

    def candidate(self, artifact: Artifact) -> "Candidate":
        """What the artifact's kernel and dtype ask of a problem; tiles ask nothing more."""
        promised = [(a.name.replace("_ptr", "_align"), a.divisible) for a in artifact.arguments
                    if a.divisible > 1 and a.name not in WORKSPACE_POINTERS]
        asked = (self.kernels[artifact.kernel][2], tuple(promised), any(a.kind == "i32" for a in artifact.arguments))
        number = self.demands.setdefault(asked, len(self.demands))
        return Candidate(artifact.kernel, family(artifact.kernel), *asked, [], number)

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

    def asked(self, problem: Problem) -> tuple:
        """Kernels of the problem's op and rank in its arithmetic; IEEE ones are right where TF32 is allowed."""
        key = (problem.op, problem.rank)
        more = self.candidates.get((*key, "f32"), ()) if problem.arithmetic == "tf32" else ()
        return self.candidates.get((*key, problem.arithmetic), ()) + more

    @cached_property
    def named(self) -> dict[str, tuple[Artifact, "Candidate"]]:
        """Variant -> its artifact and what its kernel asks, of those that may run."""
        found = (c for kernels in self.candidates.values() for c in kernels)
        return {artifact.variant: (artifact, c) for c in found for artifact, *_ in c.artifacts}

    def ranked(self, problem: Problem, seen: tuple[float, ...] | None = None) -> list[tuple[float, str, Artifact]]:
        """(expected microseconds, kernel, artifact) of every applicable artifact, best first; ties by name."""
        rows, multiprocessors, shapes, met = [], self.device.multiprocessors, {}, {}
        seen = seen or features(problem, multiprocessors)
        for candidate in self.asked(problem):
            if candidate.demands not in met:
                met[candidate.demands] = candidate.accepts(problem)
            if met[candidate.demands]:
                kind = candidate.family
                shape = shapes.get(kind) or shapes.setdefault(kind, kind.shape_of(problem))
                rows += [(corrected(weights, kind.estimate_us(prepared, shape, multiprocessors), seen), candidate.kernel, artifact)
                         for artifact, prepared, weights in candidate.artifacts if kind.programs(prepared, shape) <= GRID_LIMIT]
        return sorted(rows, key=lambda row: (row[0], row[2].variant))

    def choose(self, problem: Problem, strict: bool = False, tuned: bool = True) -> Choice:
        """The tier that answers. strict: aten does not while any artifact applies. tuned: whether that tier is asked."""
        told = "not asked"
        if tuned:
            choice, told = self.choose_tuned(problem, strict)
            if choice:
                return choice
        seen = features(problem, self.device.multiprocessors)
        rows = self.ranked(problem, seen)
        tier = "rule" if any(not kernel.endswith("_i64") for _, kernel, _ in rows) else "generic"
        if tier == "rule":
            rows = [row for row in rows if not row[1].endswith("_i64")]
        aten = self.tuning.aten_us(problem, seen) if rows else None
        why = lambda: (("tuned", told), *self.told(problem, tier, rows, aten))
        if not rows or (aten and not strict and rows[0][0] > aten.limit):
            return Choice(ATEN, None, why)
        return Choice(tier, rows[0][2], why)

    def choose_tuned(self, problem: Problem, strict: bool) -> tuple[Choice | None, str]:
        """What was fastest on this very problem, and why that is or is not the answer."""
        name = self.tuning.winner(problem)
        if name is None:
            return None, "this problem was not measured on such a device"
        if name == ATEN:
            told = "aten was the fastest on this very problem"
            return (None, told + ", which strict mode ignores") if strict else (Choice(ATEN, None, lambda: (("tuned", told),)), told)
        artifact, candidate = self.named.get(name, (None, None))
        refusal = candidate.refusal(problem) if candidate else "it cannot be used here"
        if refusal:
            return None, f"{name} was the fastest on this very problem, but {refusal}"
        return Choice("tuned", artifact, lambda: (("tuned", f"{name} was the fastest on this very problem"),)), ""

    def told(self, problem: Problem, tier: str, rows: list, aten) -> tuple[tuple[str, str], ...]:
        """What the tiers after the tuned one have to say: the best three with their times, and aten's."""
        if not rows:
            return ("rule", self.refusals(problem)), ("generic", "no generic variant is usable")
        times = ", ".join(f"{artifact.variant} {us:.1f} us" for us, _, artifact in rows[:3])
        beside = f"aten {aten.us:.1f} us, a kernel serves up to {aten.limit:.1f} us" if aten else "aten was not measured on such problems"
        text = f"{len(rows)} variants apply, expected times: {times}; {beside}"
        return (("rule", text),) if tier == "rule" else (("rule", self.refusals(problem)), ("generic", text))

    def refusals(self, problem: Problem) -> str:
        """Why each kernel of this op, rank and dtype does not serve, in one line."""
        lines, seen = [], set()
        for artifact in self.pack.artifacts:
            op, rank, _ = self.kernels.get(artifact.kernel, (None, None, None))
            if (op, rank, artifact.dtype) != (problem.op, problem.rank, problem.arithmetic) or artifact.kernel in seen:
                continue
            reason = self.usable(artifact) or self.candidate(artifact).refusal(problem)
            if reason:
                seen.add(artifact.kernel)
                lines.append(f"{artifact.kernel}: {reason}")
        return "; ".join(lines) or f"no variant is built for {problem.op}, rank {problem.rank}, {problem.arithmetic}"


@dataclass(frozen=True)
class Candidate:
    """A kernel in one dtype, its demands, and its usable artifacts with what an estimate needs of them."""

    kernel: str
    family: object
    constraints: tuple
    promised: tuple[tuple[str, int], ...]  # values (of pointers: alignments) that the compiler was told are multiples
    narrow: bool                           # takes 32-bit integers
    artifacts: list
    demands: int = 0                       # the same for candidates that ask the same

    @cached_property
    def checks(self) -> tuple:
        """(test, name, bound) of every constraint and promise, ready to be asked."""
        return (*((RELATIONS[relation], name, bound) for name, relation, bound in self.constraints),
                *((RELATIONS["a multiple of"], name, divisor) for name, divisor in self.promised))

    def accepts(self, problem: Problem) -> bool:
        """Whether the kernel can take the problem, as `refusal` says, without the words: plans ask this."""
        values = problem.values
        for test, name, bound in self.checks:
            if not test(values[name], bound):
                return False
        return not (self.narrow and problem.largest_value > INT32_MAX)

    def refusal(self, problem: Problem) -> str | None:
        """Why the kernel cannot take the problem; None when it can."""
        values = problem.values
        for name, relation, bound in self.constraints:
            if not holds(values[name], relation, bound):
                return f"{name} = {values[name]}, must be {relation} {bound}"
        for name, divisor in self.promised:
            if values[name] % divisor:
                return f"{name} = {values[name]}, must be a multiple of {divisor}"
        if self.narrow and problem.largest_value > INT32_MAX:
            return f"a size or stride of {problem.largest_value} does not fit 32 bits"
        return None


def holds(value: int, relation: str, bound) -> bool:
    """One constraint."""
    if relation not in RELATIONS:
        raise ValueError(f"unknown relation {relation!r} in the dispatch module; install packs and runtime from one wheel")
    return RELATIONS[relation](value, bound)
