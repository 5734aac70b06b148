"""One row for each rule: a variant, the reason against it, word for word."""

import pytest

from aotconv.target import Target
from gen.candidates import candidates, scaled
from gen.matrix import MatrixError, load_matrix
from gen.plan import make_plan, over_budget, render_rejected
from gen.rules import reject, reject_for, select
from gen.variants import parse_variant

MATRIX = load_matrix()


@pytest.mark.parametrize("name, reason", [
    ("fwd2d_cl-f16-m48n64k32w4s2", "tile m48 is no power of 2, which tl.arange needs"),
    ("fwd2d_cl-f16-m64n64k8w4s2", "BLOCK_K 8 < 16, the least that tl.dot takes for f16"),
    ("fwd2d_cl-tf32-m64n64k4w4s2", "BLOCK_K 4 < 8, the least that tl.dot takes for tf32"),
    ("fwd2d_cl-f32-m128n64k16w8s2", "IEEE f32 with 8 warps and more than one tap: wrong results (pytorch#173068)"),
    ("fwd2d_cl_k3-f32-m64n64k16w8s2", "IEEE f32 with 8 warps and more than one tap: wrong results (pytorch#173068)"),
    ("fwd2d_cl-bf16-m256n256k32w8s2", "256 accumulators a thread > 255 registers"),
    ("fwd2d_cl-f16-m128n128k512w8s2", "at least 262144 bytes of shared memory > 232448 (sm_90a, the largest)"),
    ("fwd2d_cl_k1-f32-m64n64k16w8s2", None),     # one tap
    ("fwd2d_cl-tf32-m64n64k16w8s2", None),       # not IEEE
    ("fwd2d_cl-f32-m64n64k8w4s2", None),         # f32 takes BLOCK_K 8
    ("fwd2d_cl-f16-m128n128k128w8s4", None),     # what a target's pipeline really keeps is known after compiling
])
def test_rule(name, reason):
    assert reject(parse_variant(name), MATRIX) == reason


@pytest.mark.parametrize("name, target, reason", [
    ("fwd2d_cl-tf32-m64n64k32w4s3", "gfx950", "not for gfx950: it has no TF32 arithmetic, f32 serves there"),
    ("fwd2d_cl-tf32-m64n64k32w4s3", "gfx942", None),
    ("fwd2d_cl-tf32-m64n64k32w4s3", "sm_80", None),
    ("fwd2d_cl-f32-m64n64k16w4s3", "gfx950", None),
])
def test_rule_of_one_target(name, target, reason):
    assert reject_for(parse_variant(name), Target.parse(target), MATRIX) == reason


def test_nothing_is_dropped_without_a_line():
    plan = make_plan(MATRIX)
    rows = [line.split("\t") for line in render_rejected(plan).splitlines()[1:]]
    assert all(reason for _, reason in rows)
    lines, built = dict(rows), {v.name for v in plan.variants}
    assert {v.name for v in candidates(MATRIX)} == set(lines) | built
    for target in plan.targets:
        left_out = built - {v.name for v in plan.variants_for(target)}
        assert left_out == {name for name, reason in rows if reason.startswith(f"not for {target.name}: ")}
    assert lines["fwd2d_cl_k3-bf16-m64n64k32w4s2"] == (
        "not shipped: the curated list of fwd2d_cl_k3 has no m64n64k32w4s2 for bf16")


def test_everything_shipped_is_built_and_within_budget():
    plan = make_plan(MATRIX)
    assert plan.variants == tuple(v for entry in MATRIX.entries for v in entry.variants)
    assert over_budget(plan) == []


@pytest.mark.parametrize("row, sizes, name", [
    ((64, 256, 16, 2, 4), (100352, 64, 64), "m64n64k16w4s2"),       # BLOCK_N no larger than 64 channels
    ((1024, 16, 16, 1, 8), (512, 6, 5), "m512n16k16w8s1"),          # and no block below 16
    ((64, 64, 32, 2, 4), (16, 6, 5), "m16n16k16w1s2"),              # 256 accumulators make one warp
    ((128, 128, 64, 3, 8), (25088, 128, 128), "m128n128k64w8s3"),
])
def test_scaling_of_the_seed(row, sizes, name):
    assert scaled(MATRIX.seed, row, sizes).name == name


def test_shipped_but_rejected(tmp_path):
    path = tmp_path / "matrix.toml"
    path.write_text(MATRIX.path.read_text().replace('ship.f32 = ["m64n64k16w4s3"]', 'ship.f32 = ["m64n64k16w8s3"]'))
    with pytest.raises(MatrixError) as error:
        select(load_matrix(path))
    assert str(error.value) == (f"{path}: fwd2d_cl_k3-f32-m64n64k16w8s3 is shipped but rejected: IEEE f32 with 8 warps and more "
                                "than one tap: wrong results (pytorch#173068); take it out of ship")
