"""The fit: known weights come back from synthetic records, margins keep losses out, records survive a round trip."""

import random
from math import exp, log

import pytest

np = pytest.importorskip("numpy")

from aotconv.problem import forward_problem
from aotconv.tuning import FEATURES, cost_name, features, group_of, key
from gen import fit, table
from gen.timings import Row, TimingError, parse_row, read_sessions, read_timings, render_sessions, render_timings
from runtime_rig import ARTIFACTS

BUILT = {a.variant: a for a, _ in ARTIFACTS[:3]}
SMALL, LARGE, ANY = BUILT


def problems(count: int, seed: int = 1) -> list:
    """Random 3x3 problems, all different."""
    draw, found = random.Random(seed), {}
    while len(found) < count:
        n, c, k, size = (draw.choice(range(1, 64)), 8 * draw.choice(range(1, 80)), 8 * draw.choice(range(1, 80)), draw.choice(range(4, 80)))
        p = forward_problem((n, c, size, size), (k, c, 3, 3), padding=1, bias=draw.random() < 0.5)
        found[key(p)] = p
    return list(found.values())


def measured(p, us: dict, aten: float, estimates: dict | None = None):
    """A problem with given microseconds of artifacts and of aten; estimates are the times themselves unless given."""
    estimates = estimates or us
    variants = tuple((BUILT[name], estimates[name], log(us[name])) for name in sorted(us))
    return fit.Measured(key(p), p, features(p, 132), group_of(p), log(aten), variants)


# ---- weights ----------------------------------------------------------------------------------------------------------


def test_known_costs_come_back():
    """One variant is 1.5 times its estimate and 20 % slower with a bias; another the estimate to the power 0.9, tripled."""
    rows = []
    for p in problems(400):
        base = exp(features(p, 132)[10])
        bias = 1.2 if p.bias else 1.0
        rows.append(measured(p, {SMALL: 1.5 * base * bias, LARGE: 3 * base**0.9}, 10 * base, {SMALL: base, LARGE: base}))
    costs = fit.fit_costs(rows)
    for row in rows[:50]:
        for artifact, estimate, us in row.variants:
            told = float(np.dot(costs[cost_name(artifact.variant)], (*row.seen, log(estimate))))
            assert told == pytest.approx(us, abs=0.02)
    assert costs[cost_name(SMALL)][FEATURES.index("bias")] - costs[cost_name(LARGE)][FEATURES.index("bias")] == pytest.approx(log(1.2), abs=0.02)


def test_known_times_of_aten_come_back():
    weights = [0.3, 0.4, 0.1, 0.05, 0.2, 0, 0, 0.25, 0, 0, 0.3, 0.1, 0, 0]
    rows = [measured(p, {SMALL: 5.0}, exp(float(np.dot(weights, features(p, 132))))) for p in problems(400)]
    (group,), found = {row.group for row in rows}, fit.fit_aten(rows)
    residuals = sorted(abs(float(np.dot(found[group], row.seen)) - row.aten) for row in rows)
    assert group == "fwd 2d 3x3 l half" and residuals[200] < 0.03 and residuals[-1] < 0.3


def test_a_part_with_few_records_takes_its_slopes_from_its_pool():
    """All tiles take the estimate to the power 0.8; three records of one tile, at one size, cannot tell, and need not."""
    found, rows = problems(200), []
    for p in found:
        base = exp(features(p, 132)[10])
        rows.append(measured(p, {SMALL: base**0.8}, 9 * base, {SMALL: base}))
    for p in found[:3]:
        base = exp(features(p, 132)[10])
        rows.append(measured(p, {LARGE: 2 * base**0.8}, 9 * base, {LARGE: base}))
    weights = fit.fit_costs(rows)[cost_name(LARGE)]
    for p in found[50:]:
        seen = features(p, 132)
        assert float(np.dot(weights, (*seen, seen[10]))) == pytest.approx(log(2) + 0.8 * seen[10], abs=0.15)


# ---- margins ----------------------------------------------------------------------------------------------------------


def test_margins():
    sure = [("fwd 2d 3x3 l half", 0.5, 0.4)] * 20
    never = [("fwd 1d 1x1 c half", 0.3, -0.5)] * 20
    only_large = [("bwd_input 2d 1x1 l half", hoped, 0.3 if hoped > 0.25 else -0.2) for hoped in (0.05, 0.1, 0.22, 0.35, 0.5)] * 6
    margins = fit.fit_margins(sure + never + only_large)
    assert 0.25 < margins["bwd_input 2d 1x1 l half"] <= 0.35
    assert margins["fwd 2d 3x3 l half"] <= 0.5 and margins["fwd 1d 1x1 c half"] == fit.MARGINS[-1] == margins["fwd 3d other l half"]


def test_judgement_on_other_models_finds_no_regret():
    """Kernels win by half where channels are many and lose by half elsewhere: choices on unseen models must say so."""
    found, rows, models = problems(300), [], {}
    for number, p in enumerate(found):
        wins = p.w.sizes[1] > 300
        base = exp(features(p, 132)[10])
        rows.append(measured(p, {SMALL: base}, base * (1.6 if wins else 0.6) if abs(p.w.sizes[1] - 300) > 60 else base))
        models[key(p)] = {f"model{number % 10}"}
    last = fit.judge(rows, models).splitlines()[-1].split()
    total, kernels, geomean, tuned, good = int(last[1]), int(last[2]), float(last[3]), float(last[4]), float(last[6].rstrip("%"))
    assert total == 150 and 30 < kernels < 100 and good > 93 and tuned > 1.15 and geomean > 0.9 * tuned


# ---- files ------------------------------------------------------------------------------------------------------------


def test_timings_round_trip(tmp_path):
    rows = [Row("p", "aten", 12.34, 0.012, 7, "s1"), Row("p", "fwd2d_cl-bf16-m64n64k64w4s3", 9.5, 0.0, 3, "s1")]
    path = tmp_path / "timing.tsv"
    assert read_timings(path) == []
    path.write_text(render_timings(rows))
    assert read_timings(path) == rows
    fields = dict(zip(("session", "device", "multiprocessors", "driver", "torch", "cudnn", "clock_mhz", "date"), "s1 H 132 13000 2.11 91900 1980 2026-12-01".split()))
    (tmp_path / "sessions.tsv").write_text(render_sessions({"s1": fields}))
    assert read_sessions(tmp_path / "sessions.tsv") == {"s1": fields}


@pytest.mark.parametrize("line, message", [(["p", "aten", "x", "0", "7", "s"], "line 3: could not convert"), (["p"], "line 3: not enough values")])
def test_unreadable_timings(line, message):
    with pytest.raises(TimingError, match=message):
        parse_row("timing.tsv", 3, line)


def test_timings_with_other_columns(tmp_path):
    (tmp_path / "timing.tsv").write_text("problem\tus\n")
    with pytest.raises(TimingError, match="expected .*python -m gen tune"):
        read_timings(tmp_path / "timing.tsv")


@pytest.mark.parametrize("times, expected", [
    (dict(a=10.0, b=9.0, aten=9.5), "b"), (dict(a=10.0, b=9.0, aten=8.9), "aten"), (dict(a=9.05, b=9.0, aten=9.5), "a"),   # a tie: by name
    (dict(a=9.2, b=9.0, aten=9.5), "b"), (dict(a=9.0, aten=9.0), "a"), (dict(c=1.0, aten=9.0), "aten"),                    # c is not admitted
    (dict(a=10.0, b=9.0, c=1.0, aten=9.5), "b"), (dict(aten=9.0, aten_contiguous=1.0), "aten"),
])
def test_winner(times, expected):
    assert table.winner(times, {"a", "b"}) == expected


def test_winners_are_kept_by_multiprocessors_and_need_aten(tmp_path):
    rows = [Row("p", "aten", 9, 0, 7, "s1"), Row("p", "a", 8, 0, 7, "s1"), Row("q", "a", 8, 0, 7, "s1"), Row("p", "aten", 5, 0, 7, "s2"), Row("p", "a", 8, 0, 7, "s2")]
    assert table.winners(table.by_problem(rows, {"s1": "132", "s2": "114"}), {"a"}) == {"132": {"p": "a"}, "114": {"p": "aten"}}
    with pytest.raises(TimingError, match="session 's2', which sessions.tsv does not know"):
        table.by_problem(rows, {"s1": "132"})


def test_models_round_trip(tmp_path):
    models = {"costs": {cost_name(SMALL): [0.5] * 15}, "aten": {"fwd 2d 3x3 l half": {"weights": [0.25] * 14, "margin": 0.1}}}
    path = tmp_path / "sm_90a.json"
    path.write_text(fit.render_models(models, "sm_90a", 7))
    read = table.read_models(path)
    assert (read["costs"], read["aten"], read["problems"]) == (models["costs"], models["aten"], 7)
    assert table.fitted(read, {ANY}) == {"costs": {}, "aten": models["aten"]}  # costs of what is admitted alone
    path.write_text(path.read_text().replace('"deep"', '"steep"'))
    with pytest.raises(table.RecordError, match="fit again: python -m gen fit"):
        table.read_models(path)


def test_models_of_more_problems_are_not_replaced(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fit, "read_measured", lambda *_: [])
    monkeypatch.setattr(fit, "Pack", lambda path: None)
    path = tmp_path / "sm_90a.json"
    path.write_text(fit.render_models({"costs": {}, "aten": {}}, "sm_90a", 7))
    assert fit.main(["--models", str(tmp_path)]) == 1
    assert "fitted to 7 problems, the records and packs here have 0" in capsys.readouterr().err
