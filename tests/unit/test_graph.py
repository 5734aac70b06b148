"""The graph: what needs what, in which order, and how it is written for ninja."""

import pytest

from gen.graph import Edge, Place, critical_path, edges, escape, goals, needed, render_ninja, spell, to_networkx, ROOT
from gen.matrix import load_matrix
from gen.only import Only, OnlyError, parse_only
from gen.plan import make_plan

MATRIX = """\
format = 1
build = { targets = ["sm_90a", "gfx942"] }
budgets = { artifacts = 9, megabytes = 1.0, cpu_seconds = 60, spill_bytes = 0 }
options = { hip = { kpack = 2 } }
seed = { configs = [], small = [], min_block = 16, accumulators_per_warp = 256, classes = [] }
[[kernel]]
template = "fwd_any"
op = "fwd"
layout = "any"
ranks = [1, 2]
pins = [0]
ship.half = ["m16n16k16w1s1"]
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "matrix.toml"
    path.write_text(MATRIX)
    return make_plan(load_matrix(path))


PLACE = Place("out", records="no/records")


def outputs(chosen):
    return [edge.outputs[0] for edge in chosen]


def test_edges(plan):
    compiles = [e for e in edges(plan, PLACE) if e.rule == "compile"]
    assert [(e.outputs, e.inputs) for e in compiles][0] == (
        ("out/obj/sm_90a/fwd1d_any-f16-m16n16k16w1s1.json", "out/obj/sm_90a/fwd1d_any-bf16-m16n16k16w1s1.json"),
        ("out/kernels/fwd1d_any.py",))
    assert len(compiles) == 4 and all("out/toolchain/triton.json" in e.implicit for e in compiles)
    assert sorted(e.rule for e in edges(plan, PLACE)) == ["compile"] * 4 + ["cxx"] + ["pack"] * 2


def test_all_is_in_order_and_a_selection_takes_what_it_needs(plan):
    graph = to_networkx(edges(plan, PLACE))
    order = outputs(needed(graph, []))
    assert len(order) == 7
    assert order.index("out/packs/sm_90a.pack") > order.index("out/obj/sm_90a/fwd2d_any-f16-m16n16k16w1s1.json")
    whole = outputs(needed(graph, goals(plan, PLACE, parse_only("target=gfx942", plan))))
    assert sorted(whole) == ["out/launcher.so", "out/obj/gfx942/fwd1d_any-f16-m16n16k16w1s1.json",
                             "out/obj/gfx942/fwd2d_any-f16-m16n16k16w1s1.json", "out/packs/gfx942.pack"]
    part = goals(plan, PLACE, parse_only("target=gfx942,rank=2,dtype=bf16", plan))
    assert part == ["out/obj/gfx942/fwd2d_any-bf16-m16n16k16w1s1.json"]


def test_critical_path(plan):
    graph = to_networkx(edges(plan, PLACE))
    seconds, path = critical_path(graph, needed(graph, []))
    assert [e.rule for e in path] == ["compile", "pack"] or [e.rule for e in path] == ["cxx"]
    assert seconds == pytest.approx(sum(e.seconds for e in path))


def test_cycle_is_an_error():
    with pytest.raises(ValueError, match="cycle"):
        to_networkx([Edge("pack", ("a",), ("b",)), Edge("pack", ("b",), ("a",))])


def test_only_build_statements_and_quoted_values(plan):
    text = render_ninja(edges(plan, PLACE), Place("an out", records="no/records"))
    heads = {line.split()[0] for line in text.splitlines() if line and not line.startswith((" ", "#"))}
    assert heads == {"build", "builddir", "out_dir", "records", "compiler", "include"}
    assert "out_dir = 'an out'\n" in text and "include an$ out/toolchain/jobs.ninja\n" in text
    assert """  options = '{"kpack": 2}'\n""" in text
    assert str(ROOT) not in text
    assert escape("$5") == "$$5"


def test_paths_below_the_root_are_relative(tmp_path):
    assert spell(ROOT / "generated") == "generated"
    assert spell(tmp_path) == str(tmp_path)


@pytest.mark.parametrize("text, message", [
    ("arch=sm_90a", "--only has no field 'arch'; known are target, op, rank, dtype, layout, kernel, as in target=sm_90a,dtype=f16|bf16"),
    ("target=sm_80", "--only target=sm_80: known are sm_90a, gfx942"),
    ("dtype=f16|f32", "--only dtype=f32: known are f16, bf16"),
    ("rank", "--only rank=: known are 1, 2"),
])
def test_selection_of_nothing_known(plan, text, message):
    with pytest.raises(OnlyError) as error:
        parse_only(text, plan)
    assert str(error.value) == message


def test_selection(plan):
    assert parse_only("", plan) == Only()
    only = parse_only("dtype=f16|bf16, rank=2", plan)
    assert [v.kernel.name for v in plan.variants if only.picks(plan.targets[0], v)] == ["fwd2d_any", "fwd2d_any"]
    assert not only.whole_targets and parse_only("target=sm_90a", plan).whole_targets
