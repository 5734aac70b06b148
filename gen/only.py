"""`--only field=value,...`: which part of a plan a command works on. Values may be separated by `|`.

`target=default` are the targets that the matrix names as such.
"""

from dataclasses import dataclass

from aotconv.target import Target
from gen.plan import Plan
from gen.variants import Variant

FIELDS = {
    "target": lambda target, v: target.name, "op": lambda target, v: v.kernel.op,
    "rank": lambda target, v: str(v.kernel.rank), "dtype": lambda target, v: v.dtype,
    "layout": lambda target, v: v.kernel.layout, "kernel": lambda target, v: v.kernel.name,
}


class OnlyError(ValueError):
    """A selection that names nothing: says which names there are."""


@dataclass(frozen=True)
class Only:
    """Field -> allowed values; a field that is not named allows all."""

    fields: tuple[tuple[str, frozenset[str]], ...] = ()

    @property
    def whole_targets(self) -> bool:
        """Whether every selected target is selected in full."""
        return {field for field, _ in self.fields} <= {"target"}

    def picks(self, target: Target, variant: Variant) -> bool:
        return all(FIELDS[field](target, variant) in values for field, values in self.fields)

    def targets(self, plan: Plan) -> list[Target]:
        """Targets of which anything is selected."""
        return [t for t in plan.targets if any(self.picks(t, v) for v in plan.variants_for(t))]


def parse_only(text: str, plan: Plan) -> Only:
    """The selection that `text` spells; empty text selects everything."""
    pairs = [part.strip().partition("=") for part in text.split(",")] if text.strip() else []
    only = Only(tuple((field, check_values(field, values, plan)) for field, _, values in pairs))
    if not only.targets(plan):
        raise OnlyError(f"--only {text}: each value is known, but no variant has all of them; see python -m gen list")
    return only


def check_values(field: str, values: str, plan: Plan) -> frozenset[str]:
    if field not in FIELDS:
        raise OnlyError(f"--only has no field {field!r}; known are {', '.join(FIELDS)}, as in target=sm_90a,dtype=f16|bf16")
    if (field, values) == ("target", "default"):
        return frozenset(plan.matrix.default)
    known = dict.fromkeys(FIELDS[field](t, v) for t in plan.targets for v in plan.variants_for(t))
    for value in values.split("|"):
        if value not in known:
            raise OnlyError(f"--only {field}={value}: known are {', '.join(known)}")
    return frozenset(values.split("|"))
