"""Which tier and variant answers: constraints as data, every tier, every device; numbers such as D7 are public cases."""

import dataclasses
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aotconv.problem import Layout, forward_problem
from aotconv.select import Candidate, holds
from aotconv.target import SHARED_LIMIT, Device, Target, best_target, runs_on
from runtime_rig import ARTIFACTS, H200, artifact, make_folder, make_runtime

P = forward_problem((2, 16, 9, 9), (16, 16, 3, 3), padding=1)


def library(folder, artifacts=ARTIFACTS, device=H200, **more):
    return make_runtime(make_folder(folder, artifacts, **more), device).library(0)


# ---- constraints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value, relation, bound, answer", [
    (3, "==", 3, True), (4, "==", 3, False), (3, "<=", 3, True), (4, "<=", 3, False), (1, "in", (0, 1), True), (2, "in", (0, 1), False),
    (3, ">=", 3, True), (2, ">=", 3, False), (0, "a multiple of", 8, True), (12, "a multiple of", 8, False),
])
def test_relations(value, relation, bound, answer):
    assert holds(value, relation, bound) is answer


def test_unknown_relation_names_the_remedy():
    with pytest.raises(ValueError, match="one wheel"):
        holds(1, "about", 1)


def test_each_demand_refuses_and_says_so():
    kernel = Candidate("k", None, (("kernel_h", "==", 3),), (("x_align", 16), ("x_w", 8)), True, [])
    assert kernel.refusal(P) is None
    assert "kernel_h = 1" in kernel.refusal(forward_problem((2, 16, 9, 9), (16, 16, 1, 3)))
    assert "x_align = 2" in kernel.refusal(replace(P, x=replace(P.x, align=2)))
    assert "x_w = 12" in kernel.refusal(forward_problem((2, 12, 9, 9), (16, 12, 3, 3)))
    assert "32 bits" in kernel.refusal(replace(P, x=replace(P.x, strides=(2**31, *P.x.strides[1:]))))


# ---- tiers ------------------------------------------------------------------------------------------------------------


def test_rule_then_generic_then_aten(tmp_path):
    lib = library(tmp_path)
    assert lib.choose(P).tier == "rule" and lib.choose(P).artifact.kernel == "fwd2d_cl"
    odd = replace(P, x=replace(P.x, strides=tuple(2 * s for s in P.x.strides)))
    assert lib.choose(odd).artifact.kernel == "fwd2d_any"
    far = replace(P, x=replace(P.x, strides=(2**31 + 16, *P.x.strides[1:])))
    assert (lib.choose(far).tier, lib.choose(far).artifact.kernel) == ("generic", "fwd2d_any_i64")
    other = lib.choose(replace(P, op="bwd_weight"))
    assert (other.tier, other.artifact) == ("aten", None)
    for choice in map(lib.choose, (P, odd, far, replace(P, op="bwd_weight"))):
        assert choice.reasons[-1][0] in (choice.tier, "generic") and all(len(reason) > 5 for _, reason in choice.reasons)


def test_expanded_channels_are_no_unit_stride(tmp_path):
    lib = library(tmp_path)
    for name in "xwy":
        expanded = replace(P, **{name: Layout(getattr(P, name).sizes, (0, 0, 0, 0))})
        assert lib.choose(expanded).artifact.kernel == "fwd2d_any"


def test_one_channel_is_of_unit_stride(tmp_path):
    lib = library(tmp_path, (artifact(arguments=ARTIFACTS[2][0].arguments),))  # promises nothing
    assert lib.choose(forward_problem((2, 1, 9, 9), (16, 1, 3, 3))).artifact.kernel == "fwd2d_cl"


def test_table_of_one_and_of_none(tmp_path):
    one = library(tmp_path / "one", ARTIFACTS[:1])
    assert one.choose(P).artifact == one.pack.artifacts[0]
    none = library(tmp_path / "none", ())
    assert none.choose(P).tier == "aten" and "no variant is built" in dict(none.choose(P).reasons)["rule"]


def test_unadmitted_is_not_chosen_unless_asked(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "a", admitted={ARTIFACTS[2][0].variant: ARTIFACTS[2][0].sha256, ARTIFACTS[0][0].variant: "of other bytes"})
    assert make_runtime(folder).library(0).choose(P).artifact.kernel == "fwd2d_any"
    none = make_runtime(make_folder(tmp_path / "b", admitted={})).library(0).choose(P)
    assert none.artifact is None and "AOTCONV_UNADMITTED" in dict(none.reasons)["rule"]
    monkeypatch.setenv("AOTCONV_UNADMITTED", "1")
    assert make_runtime(folder).library(0).choose(P).artifact.kernel == "fwd2d_cl"


# ---- devices ----------------------------------------------------------------------------------------------------------


def test_t7_shared_memory_is_asked_before_choosing(tmp_path):
    big, small = artifact(shared=131_072, tile=(128, 128, 64)), artifact(shared=90_000, tile=(64, 64, 64))
    large = forward_problem((64, 256, 56, 56), (256, 256, 3, 3), padding=1)
    for number, (limit, expected) in enumerate(((232_448, big), (101_376, small), (65_536, None))):
        lib = library(tmp_path / str(number), (big, small), replace(H200, shared_limit=limit))
        chosen = lib.choose(large).artifact
        assert (chosen and chosen.variant) == (expected and expected[0].variant)
    assert "131072 bytes of shared memory, the device has 65536" in dict(lib.choose(large).reasons)["rule"]


def test_the_number_of_multiprocessors_counts(tmp_path):
    """T5: a slice of a GPU is not the GPU; a name is nothing that dispatch could see."""
    problems = [forward_problem((n, 64, size, size), (128, 64, 3, 3), padding=1) for n in (1, 4, 16, 64) for size in (7, 14, 28, 56)]
    libraries = [library(tmp_path / str(count), device=replace(H200, multiprocessors=count)) for count in (16, 132)]
    assert any(libraries[0].choose(p).artifact != libraries[1].choose(p).artifact for p in problems)
    assert {field.name for field in dataclasses.fields(Device)} == {"backend", "capability", "arch", "multiprocessors", "shared_limit"}


D7 = {(7, 5): ["sm_75"], (8, 0): ["sm_80"], (8, 6): ["sm_80"], (8, 9): ["sm_80"], (9, 0): ["sm_90a"], (10, 0): ["sm_100a"],
      (10, 3): [], (12, 0): ["sm_120a"], (12, 1): []}


@pytest.mark.parametrize("capability", D7)
def test_d7_which_file_runs_where(capability):
    device = Device("cuda", capability)
    files = ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]
    assert [name for name in files if runs_on(Target(name), device)] == D7[capability]


def test_the_closest_target_is_taken():
    assert best_target(("sm_80", "sm_86", "sm_89"), Device("cuda", (8, 9))) == "sm_89"
    assert best_target(("sm_80", "sm_86", "sm_89"), Device("cuda", (8, 7))) == "sm_86"
    assert best_target(("sm_80", "sm_unheard"), Device("cuda", (8, 0))) == "sm_80"
    assert best_target(("sm_80", "gfx942"), Device("cuda", (9, 0))) is None
    assert best_target(("sm_80", "gfx942"), Device("hip", arch="gfx942:sramecc+:xnack-")) == "gfx942"
    assert best_target(("gfx942",), Device("hip", arch="gfx9420")) is None
    for name, other in itertools.product(SHARED_LIMIT, SHARED_LIMIT):
        target = Target(other)
        device = Device("cuda", divmod(target.arch, 10)) if target.backend == "cuda" else Device("hip", arch=other)
        assert runs_on(Target(name), device) == (name == other or (name, other) in {("sm_80", "sm_86"), ("sm_80", "sm_89"), ("sm_86", "sm_89")})


# ---- T1 ---------------------------------------------------------------------------------------------------------------

CHOICES = """
import json, runpy, sys
from itertools import product
from aotconv.pack import Pack
from aotconv.problem import forward_problem
from aotconv.select import Library
from aotconv.target import Device
folder = sys.argv[1]
kernels = runpy.run_path(folder + "/dispatch.py")["KERNELS"]
admitted = json.load(open(folder + "/tables/sm_90a.json"))["admitted"]
library = Library(Pack(folder + "/packs/sm_90a.pack"), kernels, admitted, Device("cuda", (9, 0), "", 132, 232448))
for n, c, k, size, kernel in product((1, 8, 64), (8, 24, 64, 256), (16, 40, 512), (1, 7, 14, 56), (1, 3, 5)):
    choice = library.choose(forward_problem((n, c, size, size), (k, c, kernel, kernel), padding=2))
    print(choice.tier, choice.artifact.variant)
"""


def test_t1_the_same_choice_in_eight_processes(tmp_path):
    tiles = itertools.product((16, 32, 64, 128), (16, 64, 128), (32, 64))
    folder = make_folder(tmp_path / "a", (*(artifact(tile=tile) for tile in tiles), *ARTIFACTS[2:]))
    command = [sys.executable, "-c", CHOICES, str(folder)]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [subprocess.Popen(command, env={**path, "PYTHONHASHSEED": str(seed)}, stdout=subprocess.PIPE) for seed in range(8)]
    answers = {process.communicate()[0] for process in processes}
    assert len(answers) == 1
    lines = answers.pop().decode().splitlines()
    assert len(lines) == 432 and len(set(lines)) > 5


def test_the_committed_table_admits_only_what_a_pack_can_name():
    from aotconv.generated import dispatch

    folder = Path(__file__).parents[2] / "generated" / "tables"
    for path in folder.glob("*.json"):
        table = json.loads(path.read_text())
        assert {variant.split("-")[0] for variant in table["admitted"]} <= set(dispatch.KERNELS)


def test_a_wheel_of_some_targets_serves_with_the_packs_that_it_has(tmp_path):
    """scripts/build packs the default targets; a device of another minor version takes the closest pack there is."""
    folder = make_folder(tmp_path / "generated", target="sm_86")
    (folder / "dispatch.py").open("a").write("\nTARGETS = ('sm_86', 'sm_89', 'sm_90a')\n")
    runtime = make_runtime(folder, Device("cuda", (8, 9), "", 142, 101_376))
    assert runtime.library(0).pack.target == "sm_86"
