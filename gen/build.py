"""The build, from a plan to packs: render, repair, ninja, report."""

from pathlib import Path

from gen.cxx import cxx_identity
from gen.files import write_if_changed
from gen.graph import ROOT, Edge, Place, artifact_json, edges, goals, has_records, render_ninja
from gen.jobs import find_jobs
from gen.lock import locked
from gen.only import Only
from gen.pack_files import pack
from gen.plan import Plan, check_budgets, render_rejected
from gen.repair import repair
from gen.report import check_size, report
from gen.run_ninja import remove_dead, run_ninja
from gen.table import write_table
from gen.toolchain import find_toolchain


def build(plan: Plan, place: Place, only: Only = Only(), say=print):
    """Make everything that `only` selects. Raises BuildFailed when a part of it cannot be made."""
    check_budgets(plan)
    statements = edges(plan, place)
    with locked(place.path, say) as lock:
        render(plan, place, statements)
        remove_dead(place)
        repair(place.path, made(statements), read(statements), say)
        if not run_ninja(place, goals(plan, place, only), find_jobs(), lock, say):
            say("no work to do")
        if only.whole_targets:
            check_size(plan, report(place.path, [target.name for target in only.targets(plan)], say))


def render(plan: Plan, place: Place, statements: list[Edge]) -> list[Path]:
    """Write sources, manifest, toolchain files and build.ninja; returns what changed. The caller holds the lock."""
    from gen.render import render_all

    toolchain, out = find_toolchain(), place.path
    changed = render_all(plan.matrix, toolchain, out)
    texts = {
        out / "rejected.tsv": render_rejected(plan),
        out / "toolchain" / "triton.json": toolchain.text(),
        out / "toolchain" / "cxx.json": cxx_identity(),
        out / "toolchain" / "jobs.ninja": find_jobs().text(),
        out / "build.ninja": render_ninja(statements, place),
    }
    return changed + [path for path, text in texts.items() if write_if_changed(path, text)]


def render_some(plan: Plan, place: Place, only: Only) -> list[Path]:
    """Write the selected kernels' sources and nothing else; returns those that changed."""
    from gen.render import environment, render_kernel

    chosen = {v.kernel for target in plan.targets for v in plan.variants_for(target) if only.picks(target, v)}
    texts = {place.path / "kernels" / f"{kernel.name}.py": render_kernel(environment(), kernel, entry)
             for kernel, entry in plan.matrix.kernels.items() if kernel in chosen}
    return [path for path, text in texts.items() if write_if_changed(path, text)]


def repack(plan: Plan, place: Place, only: Only = Only(), say=print):
    """Packs and tables of the selected targets from the artifacts that stand; an absent one is an error."""
    with locked(place.path, say):
        targets = only.targets(plan)
        for target in targets:
            pack(place.path, target, [ROOT / artifact_json(place, target, v) for v in plan.variants_for(target)])
            if has_records(place, target):
                write_table(place.path, target.name, ROOT / place.records)
        report(place.path, [target.name for target in targets], say)


def made(statements: list[Edge]) -> set[Path]:
    """Every file that an edge makes."""
    return {ROOT / path for edge in statements for path in (*edge.outputs, *edge.side)}


def read(statements: list[Edge]) -> list[Path]:
    """Every file that an edge reads, in order."""
    return [ROOT / path for path in dict.fromkeys(p for edge in statements for p in (*edge.inputs, *edge.implicit))]
