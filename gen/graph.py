"""Plan -> build graph -> build.ninja. Commands live in the hand-written rules.ninja; here are only files and edges.

Paths are relative to the repository's root wherever they lie below it, so its own name never enters a command.
`edges` is plain data. Only `to_networkx` needs networkx: reachability, order and the critical path.
"""

import io
import json
import os
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aotconv.target import Target
from gen.compile import MODULES
from gen.native import sources
from gen.only import Only
from gen.plan import LIGHT_SECONDS, Plan, edge_seconds
from gen.variants import Kernel, Variant

ROOT = Path(__file__).resolve().parent.parent
PACK_MODULES = ("aotconv/pack.py", "aotconv/target.py", "gen/files.py", "gen/pack_files.py")
TABLE_MODULES = (
    *(f"aotconv/{name}.py" for name in ("depthwise", "families", "gemm", "geometry", "hopper", "pack", "plan", "problem", "select",
                                        "target", "tuning", "weight")),
    *(f"gen/{name}.py" for name in ("files", "problems", "table", "timings", "untimed")),
)
CXX_MODULES = ("gen/cxx.py", "gen/files.py", "gen/native.py")


@dataclass(frozen=True)
class Place:
    """Where a build writes and finds things: `out` and `records` as build.ninja spells them, and the compile worker."""

    out: str
    records: str = "gen/records"
    compiler: str = "gen.compile"

    def __call__(self, *parts: str) -> str:
        return "/".join((self.out, *parts))

    @property
    def path(self) -> Path:
        """The output folder, whatever the working directory."""
        return ROOT / self.out


@dataclass(frozen=True)
class Edge:
    """One build statement. `seconds` is an estimate."""

    rule: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    seconds: float = LIGHT_SECONDS
    side: tuple[str, ...] = ()      # outputs that $out does not name


def spell(path: Path) -> str:
    """A path as build.ninja has it: relative when below the root."""
    path = Path(os.path.abspath(path))
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


@cache
def present(names) -> tuple[str, ...]:
    return tuple(name for name in names if (ROOT / name).exists())


def edges(plan: Plan, place: Place) -> list[Edge]:
    """Every build statement; the longest compilations first, so that none of them ends alone."""
    compiles = [compile_edge(plan, place, target, kernel, variants)
                for target in plan.targets for kernel, variants in plan.kernels_for(target).items()]
    compiles.sort(key=lambda edge: -edge.seconds)
    packs = [pack_edge(plan, place, target) for target in plan.targets]
    tables = [table_edge(place, target) for target in plan.targets if has_records(place, target)]
    return [cxx_edge(place), *compiles, *packs, *tables]


def compile_edge(plan: Plan, place: Place, target: Target, kernel: Kernel, variants: tuple[Variant, ...]) -> Edge:
    options = plan.matrix.options.get(target.backend, {})
    return Edge(
        "compile", tuple(artifact_json(place, target, v) for v in variants), (place("kernels", f"{kernel.name}.py"),),
        (place("toolchain", "triton.json"), *present(MODULES)),
        (("kernel", kernel.name), ("target", target.name), ("options", json.dumps(options, sort_keys=True)),
         ("spill_limit", str(plan.matrix.budgets.spill_bytes)),
         ("variants", " ".join(f"{v.dtype}-{v.config.name}" for v in variants))),
        edge_seconds(target, len(variants)),
    )


def artifact_json(place: Place, target: Target, variant: Variant) -> str:
    return place("obj", target.name, f"{variant.name}.json")


def pack_edge(plan: Plan, place: Place, target: Target) -> Edge:
    return Edge(
        "pack", (place("packs", f"{target.name}.pack"),), tuple(artifact_json(place, target, v) for v in plan.variants_for(target)),
        (place("toolchain", "triton.json"), *present(PACK_MODULES)), (("target", target.name),),
        side=(place("packs", f"{target.name}.json"),),
    )


def table_edge(place: Place, target: Target) -> Edge:
    records = f"{place.records}/{target.name}"
    measured = (f"{records}/timing.tsv", f"{records}/sessions.tsv", f"{records}/problems.jsonl", f"gen/models/{target.name}.json")
    return Edge(
        "table", (place("tables", f"{target.name}.json"),),
        (place("packs", f"{target.name}.pack"), place("dispatch.py"), f"{records}/admission.tsv"),
        present((*measured, *TABLE_MODULES)), (("target", target.name),),
    )


def has_records(place: Place, target: Target) -> bool:
    return (ROOT / place.records / target.name / "admission.tsv").exists()


def cxx_edge(place: Place) -> Edge:
    files = tuple(spell(path) for path in sources())
    return Edge("cxx", (place("launcher.so"),), files, (place("toolchain", "cxx.json"), *present(CXX_MODULES)), seconds=3.0)


def goals(plan: Plan, place: Place, only: Only) -> list[str]:
    """What ninja is asked for: everything, whole targets with the launcher, or the selected artifacts alone."""
    if not only.fields:
        return []
    if not only.whole_targets:
        return [artifact_json(place, t, v) for t in plan.targets for v in plan.variants_for(t) if only.picks(t, v)]
    found = [place("launcher.so")]
    for target in only.targets(plan):
        found += [place("packs", f"{target.name}.pack"), place("packs", f"{target.name}.json")]
        found += table_edge(place, target).outputs if has_records(place, target) else ()
    return found


def render_ninja(all_edges: list[Edge], place: Place) -> str:
    """build.ninja: where things are, and the build statements."""
    from ninja.ninja_syntax import Writer

    text = io.StringIO()
    writer = Writer(text, width=120)
    writer.comment("Written by `python -m gen render`; the commands are in rules.ninja. Run from the repository's root.")
    writer.variable("builddir", escape(place.out))
    for name, value in (("out_dir", place.out), ("records", place.records), ("compiler", place.compiler)):
        writer.variable(name, escape(shlex.quote(value)))
    writer.include(escape(place("toolchain", "jobs.ninja")).replace(" ", "$ "))
    writer.include("rules.ninja")
    for edge in all_edges:
        writer.newline()
        writer.build(list(map(escape, edge.outputs)), edge.rule, list(map(escape, edge.inputs)),
                     implicit=list(map(escape, edge.implicit)), variables=quoted(edge),
                     implicit_outputs=list(map(escape, edge.side)))
    return text.getvalue()


def quoted(edge: Edge) -> list[tuple[str, str]]:
    """Variables as the shell must see them; lists of plain words need no quotes."""
    return [(name, escape(value if name == "variants" else shlex.quote(value))) for name, value in edge.variables]


def escape(text: str) -> str:
    """Ninja's only special character inside a value."""
    return text.replace("$", "$$")


def to_networkx(all_edges: list[Edge]):
    """A bipartite directed graph: files (str) and edges (Edge), each arc in the order of the build."""
    import networkx

    graph = networkx.DiGraph()
    for edge in all_edges:
        graph.add_edges_from((path, edge) for path in (*edge.inputs, *edge.implicit))
        graph.add_edges_from((edge, path) for path in (*edge.outputs, *edge.side))
    if not networkx.is_directed_acyclic_graph(graph):
        raise ValueError(f"the build graph has a cycle: {networkx.find_cycle(graph)}")
    return graph


def needed(graph, wanted: list[str]) -> list[Edge]:
    """The edges that `wanted` files need, in an order in which they can run; every edge when nothing is named."""
    import networkx

    reached = set(graph) if not wanted else set().union(*(networkx.ancestors(graph, path) for path in wanted))
    return [node for node in networkx.topological_sort(graph) if isinstance(node, Edge) and node in reached]


def critical_path(graph, chosen: list[Edge]) -> tuple[float, list[Edge]]:
    """(seconds, edges) of the longest chain: no number of cores makes the build shorter."""
    import networkx

    chosen = set(chosen)
    part = graph.subgraph([node for node in graph if not isinstance(node, Edge) or node in chosen])
    timed = networkx.DiGraph((a, b, {"weight": b.seconds if isinstance(b, Edge) else 0.0}) for a, b in part.edges)
    path = [node for node in networkx.dag_longest_path(timed) if isinstance(node, Edge)]
    return sum(edge.seconds for edge in path), path
