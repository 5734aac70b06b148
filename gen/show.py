"""A plan for people."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from gen.graph import Place, critical_path, edges, goals, needed, to_networkx
from gen.jobs import find_jobs
from gen.only import Only
from gen.plan import Plan, check_budgets, count_by


def show_plan(plan: Plan, place: Place, only: Only):
    """Print it; raises BudgetError when it is over budget."""
    console = Console()
    chosen = [v for v in plan.variants if any(only.picks(target, v) for target in plan.targets)]
    for table in (target_table(plan, only), axis_table(plan, chosen)):
        console.print(table)
    graph = to_networkx(edges(plan, place))
    show_time(console, graph, needed(graph, goals(plan, place, only)))
    console.print(f"{len(plan.rejected)} candidates are not built:")
    for reason, count in Counter(kind(reason) for _, reason in plan.rejected).most_common():
        console.print(f"  {count:5} {reason}", markup=False, highlight=False)
    console.print("each with its reason in rejected.tsv after `render`, or by `python -m gen why NAME`", markup=False)
    check_budgets(plan)


def target_table(plan: Plan, only: Only) -> Table:
    budget = plan.matrix.budgets
    table = Table("target", "artifacts", "MB", "CPU seconds", title="Estimates by target")
    for target in only.targets(plan):
        e = plan.estimate(target)
        share = sum(only.picks(target, v) for v in plan.variants_for(target)) / max(len(plan.variants_for(target)), 1)
        table.add_row(target.name, f"{e.artifacts * share:.0f}", f"{e.megabytes * share:.1f}", f"{e.cpu_seconds * share:.0f}")
    table.add_row("budget each", f"{budget.artifacts}", f"{budget.megabytes:.1f}", f"{budget.cpu_seconds:.0f}")
    return table


def axis_table(plan: Plan, chosen) -> Table:
    table = Table("axis", "artifacts of each target", title="Counts")
    for axis, counts in count_by(chosen).items():
        table.add_row(axis, ", ".join(f"{value} {count}" for value, count in counts.items()))
    return table


def show_time(console: Console, graph, chosen):
    seconds = sum(edge.seconds for edge in chosen)
    longest, path = critical_path(graph, chosen)
    jobs = find_jobs().compile
    console.print(f"{len(chosen)} edges, {seconds:.0f} CPU seconds; with {jobs} at once about {max(longest, seconds / jobs):.0f} s; "
                  f"the longest chain takes {longest:.0f} s: {' -> '.join(label(edge) for edge in path)}", highlight=False)


def label(edge) -> str:
    return " ".join([edge.rule, *(value for name, value in edge.variables if name in ("kernel", "target"))])


def kind(reason: str) -> str:
    """A reason without its numbers and names, to count by."""
    return reason.split(":")[0] if reason.startswith("not shipped") else " ".join("N" if w.isdigit() else w for w in reason.split())
