"""Tuning and bench without a GPU: which candidates are timed, how timings and ratios are summed up, records that resume."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aotconv.problem import forward_problem
from gen import bench, timing, tune
from gen.problems import entries_of
from gen.timing import Timing
from gen.timings import SESSION_FIELDS, Row, read_sessions, read_timings, render_timings
from gen.why_problem import device_of, is_problem, open_library, problems_of
from aotconv.target import Target, runs_on
from runtime_rig import ARTIFACTS, artifact, make_folder, make_runtime

P = forward_problem((2, 16, 9, 9), (16, 16, 3, 3), padding=1)
ROW = {"op": "convolution", "x": [2, 16, 9, 9], "w": [16, 16, 3, 3], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
       "transposed": False, "output_padding": [0, 0], "groups": 1, "bias": False}


# ---- tune -------------------------------------------------------------------------------------------------------------


def test_candidates_are_the_best_and_one_of_every_kernel(tmp_path):
    tiles = [(m, n, 32) for m in (16, 32, 64, 128) for n in (16, 32, 64)]
    library = make_runtime(make_folder(tmp_path, (*(artifact(tile=tile) for tile in tiles), *ARTIFACTS[2:]))).library(0)
    found = [a.variant for _, a in tune.candidates(library, P)]
    ranked = [a.variant for _, kernel, a in library.ranked(P) if not kernel.endswith("_i64")]
    assert found == [*ranked[: tune.BEST], ARTIFACTS[2][0].variant] and len(set(found)) == len(found)


def test_a_kernel_with_64_bit_indices_is_timed_where_it_is_alone(tmp_path):
    library = make_runtime(make_folder(tmp_path, (ARTIFACTS[3],))).library(0)
    assert [a.variant for _, a in tune.candidates(library, P)] == [ARTIFACTS[3][0].variant]


class Session(tune.Session):
    def __init__(self, folder, monkeypatch):
        monkeypatch.setattr(tune, "describe", lambda runtime: dict(zip(SESSION_FIELDS, "s2 H 132 13000 2 9 1980 d".split())))
        super().__init__(folder, None)


def test_a_session_adds_to_what_is_recorded(tmp_path, monkeypatch):
    old = [Row("p", "a", 5.0, 0.0, 7, "s1"), Row("q", "aten", 9.0, 0.0, 7, "s1")]
    (tmp_path / "timing.tsv").write_text(render_timings(old))
    session = Session(tmp_path, monkeypatch)
    session.add("p", "a", Timing(4.0, 0.01, 7))
    session.add("o", "aten", Timing(3.0, 0.01, 7))
    session.close()
    assert read_timings(tmp_path / "timing.tsv") == [Row("o", "aten", 3.0, 0.01, 7, "s2"), Row("p", "a", 4.0, 0.01, 7, "s2"), old[1]]
    assert read_sessions(tmp_path / "sessions.tsv")["s2"]["multiprocessors"] == "132"


class Clock:
    """In place of a bench: the next figures of each candidate."""

    def __init__(self, **us):
        self.us, self.asked = us, []

    def measure(self, call, sets, *more):
        self.asked.append(call)
        return Timing(self.us[call].pop(0), 0.01, 7)


def test_close_candidates_are_timed_again_in_turn_and_the_median_stands(tmp_path, monkeypatch):
    session = Session(tmp_path, monkeypatch)
    for name, us in (("aten", 10.0), ("near", 9.5), ("far", 20.0)):
        session.add("p", name, Timing(us, 0.0, 7))
    clock = Clock(aten=[9.0, 9.2], near=[9.9, 9.8])
    tune.settle(clock, session, "p", {"aten": "aten", "near": "near", "far": "far"}, 1)
    assert clock.asked == ["aten", "near", "aten", "near"]
    assert {c: session.known["p", c][2:5] for c in ("aten", "near", "far")} == {"aten": (9.2, 0.01, 21), "near": (9.8, 0.01, 21), "far": (20.0, 0.0, 7)}


def test_nothing_close_nothing_timed_again(tmp_path, monkeypatch):
    session = Session(tmp_path, monkeypatch)
    session.add("p", "aten", Timing(10.0, 0.0, 7))
    session.add("p", "far", Timing(20.0, 0.0, 7))
    tune.settle(Clock(), session, "p", {"aten": "aten", "far": "far"}, 1)
    assert session.known["p", "aten"].us == 10.0


def test_a_hopeless_call_is_timed_few_times_and_a_close_one_more():
    assert timing.repeated(iter([5.0] * 9).__next__, best_us=1.0).samples == timing.FEW
    assert timing.repeated(iter([5.0] * 9).__next__, best_us=4.9).samples == timing.REPLAYS


def test_spread_is_half_the_middle_half_over_the_median():
    assert timing.timing([9.0, 10.0, 10.0, 10.0, 10.0, 11.0, 99.0]) == Timing(10.0, pytest.approx(0.05), 7)
    assert timing.timing([4.0]) == Timing(4.0, 0.0, 1)


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_without_a_gpu_the_commands_say_so(command):
    done = subprocess.run([sys.executable, "-m", "gen", command, "p.jsonl"], cwd=Path(__file__).parents[2], capture_output=True, text=True,
                          env={"CUDA_VISIBLE_DEVICES": "", "PATH": ""})
    assert (done.returncode, done.stderr) == (2, f"{command} needs a GPU: torch.cuda.is_available() is False here\n")


# ---- bench ------------------------------------------------------------------------------------------------------------


def row(group, ratio, variant="v", aten=10.0, other=None, ours=5.0):
    return {"op": "fwd", "group": group, "ratio": ratio, "own_ratio": ratio, "variant": variant, "aten_us": aten, "aten_other_us": other,
            "ours_us": ours, "flops": 0, "bytes": 40.0, "dtype": "bf16"}


def test_summary():
    found = {"problems": [row("2d 3x3", 2.0), row("2d 3x3", 0.5, other=4.0, ours=8.0), row("1d 1x1", 1.0, "aten", 8.0, ours=8.0)],
             "rates": {"bf16": 1.0, "copy": 10.0}}
    bench.add_floors(found)
    assert [r["floor_us"] for r in found["problems"]] == [4.0, 4.0, 4.0]
    told = bench.summary(found["problems"])
    threes = told["groups"]["fwd 2d 3x3"]
    assert (threes["problems"], threes["kernels"], threes["worst"], threes["wins"], threes["no_loss"]) == (2, 2, 0.5, 0.5, 0.5)
    assert threes["geomean"] == pytest.approx(1.0) and threes["aten_over_floor"] == pytest.approx((2.5 * 1.0) ** 0.5)
    assert told["all"]["no_loss"] == pytest.approx(2 / 3) and told["all"]["kernels"] == 2
    assert told["equal_groups"] == pytest.approx(1.0)
    found["summary"] = told
    assert len(bench.render(found).splitlines()) == 1 + 2 + 1 + 1


class Runner(bench.Runner):
    """Times come from a list: aten first in each pair."""

    def __init__(self, *times):
        self.times = list(times)

    def time(self, entry, call, tensors):
        return self.times.pop(0)


def test_a_loss_is_timed_again_in_five_pairs(monkeypatch):
    monkeypatch.setattr(bench, "aten_call", lambda entry, tensors: None)
    (entry,) = entries_of(ROW)
    assert Runner().ratio(entry, row("g", None, aten=10.0, ours=10.2), None, []) == pytest.approx(10 / 10.2)  # no loss: not timed
    pairs = Runner(9, 10, 8, 10, 10, 10, 7, 10, 12, 10)
    assert pairs.ratio(entry, row("g", None, aten=9.0, ours=10.0), None, []) == pytest.approx(0.9) and pairs.times == []


# ---- why ---------------------------------------------------------------------------------------------------------------


def test_why_takes_a_row_or_a_key():
    (entry,) = entries_of(ROW)
    assert is_problem(json.dumps(ROW)) and is_problem(entry.key) and not is_problem("fwd2d_cl-bf16-m64n64k32w4s2") and not is_problem("fwd2d_cl")
    assert problems_of(json.dumps(ROW)) == problems_of(entry.key) == [P]


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "gfx942"])
def test_a_targets_own_device_runs_it(name):
    assert runs_on(Target(name), device_of(Target(name), 132))


def test_why_opens_what_is_built(tmp_path):
    class Place:
        path = make_folder(tmp_path)

    path = tmp_path / "tables" / "sm_90a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tuned": {"114": {}}}))
    library = open_library(Place, Target("sm_90a"))
    assert library.device.multiprocessors == 114 and library.choose(P).tier == "rule"
    assert open_library(Place, Target("sm_80")) is None
