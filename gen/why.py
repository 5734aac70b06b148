"""What became of a name: whether it is built, for what, how it came out, whether it was admitted; or why it is not built."""

import json

from aotconv.target import Target
from gen.candidates import candidates
from gen.graph import ROOT, Place, artifact_json, has_records
from gen.matrix import MatrixError
from gen.plan import Plan
from gen.rules import reject_for
from gen.table import read_admissions
from gen.variants import Variant, parse_kernel, parse_variant


def explain(name: str, plan: Plan, place: Place) -> list[str]:
    """Lines about a variant, or about each candidate of a kernel."""
    return explain_variant(parse(name, parse_variant), plan, place) if "-" in name else explain_kernel(name, plan)


def parse(name: str, parser):
    try:
        return parser(name)
    except ValueError as error:
        raise MatrixError(str(error)) from None


def explain_kernel(name: str, plan: Plan) -> list[str]:
    kernel = parse(name, parse_kernel)
    if kernel not in plan.kernels:
        raise MatrixError(f"{name} is no kernel of {plan.matrix.path}; there are {', '.join(k.name for k in plan.kernels)}")
    built = [f"{v.name}: built" for v in plan.kernels[kernel]]
    return built + [f"{v.name}: {reason}" for v, reason in plan.rejected if v.kernel == kernel]


def explain_variant(variant: Variant, plan: Plan, place: Place) -> list[str]:
    if variant in plan.variants:
        return [f"{variant.name} for {target.name}: {reject_for(variant, target, plan.matrix) or fate(variant, target, place)}"
                for target in plan.targets]
    reason = dict(plan.rejected).get(variant)
    if reason is None:
        known = sorted({v.config.name for v in candidates(plan.matrix) if (v.kernel, v.dtype) == (variant.kernel, variant.dtype)})
        raise MatrixError(f"{variant.name} is no candidate; " + (
            f"configs of {variant.kernel.name} for {variant.dtype} are {', '.join(known)}" if known else
            f"{plan.matrix.path} has no {variant.kernel.name} for {variant.dtype}"))
    return [f"{variant.name}: {reason}"]


def fate(variant: Variant, target: Target, place: Place) -> str:
    """What the build and the records say of one artifact."""
    path = ROOT / artifact_json(place, target, variant)
    if not path.exists():
        return "listed, not compiled yet; run python -m gen build"
    row = json.loads(path.read_text())
    if "dropped" in row:
        return f"compiled and dropped: {row['dropped']}"
    return (f"built, {row['size']} bytes, {row['registers']} registers, {row['spills']} bytes spilled, "
            f"{row['shared']} bytes of shared memory; {admission(variant, row['sha256'], target, place)}")


def admission(variant: Variant, digest: str, target: Target, place: Place) -> str:
    records = ROOT / place.records / target.name / "admission.tsv"
    record = {a.variant: a for a in read_admissions(records)}.get(variant.name) if has_records(place, target) else None
    if record is None:
        return "not admitted: it was never tested"
    if record.sha256 != digest:
        return f"not admitted: other bytes were tested ({record.date})"
    if record.result != "pass":
        return f"not admitted: {record.result} on {record.device}, {record.date}"
    return f"admitted: {record.problems} problems on {record.device}, worst error {record.worst} of its bound, {record.date}"
