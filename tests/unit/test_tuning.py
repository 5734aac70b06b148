"""Table -> dispatch: the tuned tier, corrected costs, no regret against aten's expected time, strict mode, other devices."""

import json
import subprocess
import sys
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
import torch

from aotconv import geometry, operators
from aotconv.pack import PackError
from aotconv.plan import MAGIC as PLAN_MAGIC
from aotconv.problem import forward_problem, with_op
from aotconv.target import Device
from aotconv.tuning import FEATURES, Tuning, cost_name, features, group_of, key
from runtime_rig import ARTIFACTS, H200, artifact, make_folder, make_runtime
from runtime_rig import key as words

P = forward_problem((2, 16, 9, 9), (16, 16, 3, 3), padding=1)
SMALL, LARGE, ANY, WIDE = (a.variant for a, _ in ARTIFACTS)
GROUP = "fwd 2d 3x3 l half"
NOTHING = [0.0] * len(FEATURES)
WORDS = words()


def constant(us: float) -> list[float]:
    """Weights of a model that always says `us`."""
    return [log(us), *NOTHING[1:]]


def costs(**us) -> dict:
    """Costs that say so many microseconds whatever the estimate."""
    return {cost_name({"small": SMALL, "large": LARGE, "any": ANY}[name]): [*constant(value), 0.0] for name, value in us.items()}


def library(folder, device=H200, mode="fallback", **measured):
    path = make_folder(folder) / "tables" / "sm_90a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **measured}))
    return make_runtime(folder, device, mode=mode).library(0)


def served(choice) -> str:
    return choice.artifact.variant if choice.artifact else choice.tier


# ---- the tuned tier ---------------------------------------------------------------------------------------------------


def test_tuned_winner_comes_before_the_cost_model(tmp_path):
    lib = library(tmp_path, tuned={"132": {key(P): ANY}}, costs=costs(small=1, large=2, any=99))
    choice = lib.choose(P)
    assert (choice.tier, served(choice)) == ("tuned", ANY)
    assert choice.reasons == (("tuned", f"{ANY} was the fastest on this very problem"),)
    assert (lib.choose(P, tuned=False).tier, served(lib.choose(P, tuned=False))) == ("rule", SMALL)


def test_only_this_very_problem(tmp_path):
    lib = library(tmp_path, tuned={"132": {key(P): LARGE}}, costs=costs(small=1, large=2, any=99))
    for other in (forward_problem((3, 16, 9, 9), (16, 16, 3, 3), padding=1), forward_problem((2, 16, 9, 9), (16, 16, 3, 3), padding=1, bias=True),
                  replace(P, x=replace(P.x, align=2))):
        choice = lib.choose(other)
        assert choice.tier == "rule" and dict(choice.reasons)["tuned"] == "this problem was not measured on such a device"


def test_t5_a_device_with_fewer_multiprocessors_does_not_take_the_entry(tmp_path):
    measured = dict(tuned={"132": {key(P): ANY}}, costs=costs(small=1, large=2, any=99))
    answers = {size: served(library(tmp_path / str(size), Device("cuda", (9, 0), "", size, 232_448), **measured).choose(P)) for size in (16, 114, 132)}
    assert answers == {16: SMALL, 114: SMALL, 132: ANY}


def test_aten_is_a_winner_like_any_other(tmp_path):
    choice = library(tmp_path, tuned={"132": {key(P): "aten"}}).choose(P)
    assert choice.artifact is None and choice.reasons == (("tuned", "aten was the fastest on this very problem"),)


@pytest.mark.parametrize("device, name, told", [
    (Device("cuda", (9, 0), "", 132, 65_536), LARGE, "it cannot be used here"),                # T7: not enough shared memory
    (H200, "fwd2d_cl-bf16-m1n1k1w1s1", "it cannot be used here"),                              # the pack has no such variant
])
def test_t7_a_winner_that_cannot_run_is_passed_over(tmp_path, device, name, told):
    choice = library(tmp_path, device, tuned={"132": {key(P): name}}).choose(P)
    assert (choice.tier, served(choice)) == ("rule", SMALL) and told in dict(choice.reasons)["tuned"]


def test_a_winner_that_does_not_apply_is_passed_over(tmp_path):
    odd = forward_problem((2, 12, 9, 9), (16, 12, 3, 3), padding=1)
    choice = library(tmp_path, tuned={"132": {key(odd): SMALL}}).choose(odd)
    assert (choice.tier, served(choice)) == ("rule", ANY) and "must be a multiple of 8" in dict(choice.reasons)["tuned"]


# ---- the rule tier ----------------------------------------------------------------------------------------------------


def test_costs_decide_among_variants(tmp_path):
    for number, (given, expected) in enumerate([(dict(small=3, large=2, any=4), LARGE), (dict(small=3, large=5, any=1), ANY), (dict(small=7, large=7, any=9), LARGE)]):
        assert served(library(tmp_path / str(number), costs=costs(**given)).choose(P)) == expected  # a tie goes to the first name


def test_a_variant_without_a_cost_keeps_its_estimate(tmp_path):
    plain = library(tmp_path / "a").ranked(P)
    mixed = library(tmp_path / "b", costs=costs(small=1e6)).ranked(P)
    assert [row for row in plain if row[2].variant != SMALL] == [row for row in mixed if row[2].variant != SMALL]
    assert mixed[-1][2].variant == SMALL and mixed[-1][0] == pytest.approx(1e6)


def test_the_estimate_is_a_feature():
    weights = [0.0] * len(FEATURES) + [1.0]
    tuning = Tuning({"costs": {cost_name(SMALL): weights}}, 132)
    assert tuning.corrected_us(ARTIFACTS[0][0], 17.0, features(P, 132)) == pytest.approx(17.0)


def test_both_half_types_have_one_cost():
    assert cost_name("fwd2d_cl-f16-m64n64k32w4s2") == cost_name("fwd2d_cl-bf16-m64n64k32w4s2") != cost_name("fwd2d_cl-tf32-m64n64k32w4s2")


# ---- no regret --------------------------------------------------------------------------------------------------------


def aten(us, margin=0.0, group=GROUP) -> dict:
    return {group: {"weights": constant(us), "margin": margin}}


@pytest.mark.parametrize("aten_us, margin, expected", [(11, 0.0, SMALL), (9, 0.0, "aten"), (11, 0.2, "aten"), (13, 0.2, SMALL), (9, -0.2, SMALL)])
def test_a_kernel_serves_where_it_is_expected_to_win(tmp_path, aten_us, margin, expected):
    lib = library(tmp_path, costs=costs(small=10, large=20, any=30), aten=aten(aten_us, margin))
    assert served(lib.choose(P)) == expected
    assert served(lib.choose(P, strict=True)) == SMALL


def test_t3_kernels_serve_where_nothing_was_measured(tmp_path):
    lib = library(tmp_path, costs=costs(small=10, large=20, any=30), aten=aten(1.0))
    for other in (forward_problem((2, 16, 9, 9), (16, 16, 1, 1)), forward_problem((2, 16, 9, 9), (16, 16, 3, 3), padding=1, last=False)):
        choice = lib.choose(other)
        assert choice.tier == "rule" and "aten was not measured on such problems" in dict(choice.reasons)["rule"]


def test_the_generic_tier_is_under_the_same_rule(tmp_path):
    far = replace(P, x=replace(P.x, strides=(2**31 + 16, *P.x.strides[1:])))
    group = group_of(far)
    assert served(library(tmp_path / "a", aten=aten(1e9, group=group)).choose(far)) == WIDE
    lib = library(tmp_path / "b", aten=aten(1e-9, group=group))
    assert served(lib.choose(far)) == "aten" and served(lib.choose(far, strict=True)) == WIDE


def test_reasons_tell_the_best_three_and_aten(tmp_path):
    artifacts = (*ARTIFACTS, artifact(tile=(32, 32, 32)))
    path = make_folder(tmp_path, artifacts) / "tables" / "sm_90a.json"
    given = costs(small=10, large=20, any=30) | {cost_name(artifacts[-1][0].variant): [*constant(40.0), 0.0]}
    path.write_text(json.dumps({**json.loads(path.read_text()), "costs": given, "aten": aten(8.0, 0.1)}))
    text = dict(make_runtime(tmp_path).library(0).choose(P).reasons)["rule"]
    assert text == (f"4 variants apply, expected times: {SMALL} 10.0 us, {LARGE} 20.0 us, {ANY} 30.0 us; "
                    "aten 8.0 us, a kernel serves up to 7.2 us")


# ---- strict mode, through the planner ---------------------------------------------------------------------------------


@pytest.mark.parametrize("measured", [dict(tuned={"132": {key(P): "aten"}}), dict(aten=aten(1e-9))])
def test_strict_mode_ignores_aten(tmp_path, monkeypatch, measured):
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    path = make_folder(tmp_path) / "tables" / "sm_90a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **measured}))
    fallback, strict = (make_runtime(tmp_path, mode=mode) for mode in ("fallback", "strict"))
    assert fallback.plan(WORDS) is None and strict.plan(words(flags=geometry.STRICT))[0] == PLAN_MAGIC
    assert fallback.choose(0, P).artifact is None and strict.choose(0, P).artifact.variant == SMALL


def test_strict_is_part_of_the_key(monkeypatch):
    x = torch.empty(1, dtype=torch.bfloat16)
    assert operators.flags_of(x) == 0
    monkeypatch.setattr(operators.runtime, "mode", "strict")
    assert operators.flags_of(x) == geometry.STRICT


# ---- determinism and formats ------------------------------------------------------------------------------------------

CHOICES = """
import sys
sys.path.insert(0, sys.argv[2])
from itertools import product
from pathlib import Path
from aotconv.problem import forward_problem
from runtime_rig import make_runtime
library = make_runtime(Path(sys.argv[1])).library(0)
for n, c, k, size in product((1, 2, 8, 33), (8, 16, 24, 64, 256), (16, 40, 512), (1, 7, 9, 14, 56)):
    choice = library.choose(forward_problem((n, c, size, size), (k, c, 3, 3), padding=1))
    print(choice.tier, choice.artifact and choice.artifact.variant, choice.reasons)
"""


def test_t1_the_same_choice_in_eight_processes(tmp_path):
    tuned = {key(forward_problem((n, 16, 9, 9), (16, 16, 3, 3), padding=1)): name for n, name in ((1, LARGE), (2, "aten"), (8, ANY))}
    slopes = {cost_name(v): [0.1 * i, 0.01 * i, *NOTHING[2:], 1.0] for i, v in enumerate((SMALL, LARGE, ANY))}
    library(tmp_path, tuned={"132": tuned}, costs=slopes, aten={GROUP: {"weights": [-7.0, 0.75, *NOTHING[2:]], "margin": 0.05}})
    command = [sys.executable, "-c", CHOICES, str(tmp_path), str(Path(__file__).parent)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [subprocess.Popen(command, env={**environment, "PYTHONHASHSEED": str(seed)}, stdout=subprocess.PIPE) for seed in range(8)]
    answers = {process.communicate()[0] for process in processes}
    assert len(answers) == 1
    lines = answers.pop().decode().splitlines()
    assert len(lines) == 300 and {line.split()[0] for line in lines} == {"tuned", "rule", "aten"}


def test_a_table_of_another_format_is_refused(tmp_path):
    path = make_folder(tmp_path) / "tables" / "sm_90a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))
    with pytest.raises(PackError, match="has format 0, this aotconv reads 1"):
        make_runtime(tmp_path).table("sm_90a")


def test_features_are_finite_and_as_many_as_their_names():
    for op in ("fwd", "bwd_input", "bwd_weight"):
        for sizes in ((1, 1, 1, 1), (2, 16, 9, 9)):
            found = features(with_op(forward_problem(sizes, (8, sizes[1], 1, 1)), op), 132)
            assert len(found) == len(FEATURES) and all(abs(v) < 100 for v in found)


def test_groups():
    assert group_of(P) == GROUP
    assert group_of(forward_problem((2, 16, 9), (16, 16, 1), "f32", last=False)) == "fwd 1d 1x1 c f32"
    strided = replace(P, x=replace(P.x, strides=tuple(2 * s for s in P.x.strides)))
    assert group_of(strided) == "fwd 2d 3x3 s half"  # no such records: applicable kernels serve
