"""Matrices that are refused, and what is said of each."""

import pytest

from gen.matrix import MatrixError, load_matrix

GOOD = """\
format = 1
[build]
targets = ["sm_90a"]
[budgets]
artifacts = 9
megabytes = 1.0
cpu_seconds = 60
spill_bytes = 0
[options]
[seed]
configs = []
small = []
min_block = 16
accumulators_per_warp = 256
classes = []
[[kernel]]
template = "fwd_any"
op = "fwd"
layout = "any"
ranks = [1]
pins = [0]
ship.half = ["m16n16k16w1s1"]
"""


def load(tmp_path, text):
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return load_matrix(path)


def test_good(tmp_path):
    matrix = load(tmp_path, GOOD)
    assert [v.name for v in matrix.entries[0].variants] == ["fwd1d_any-f16-m16n16k16w1s1", "fwd1d_any-bf16-m16n16k16w1s1"]
    assert [t.name for t in matrix.targets] == ["sm_90a"]


@pytest.mark.parametrize("old, new, message", [
    ("format = 1", "format = 2", "format 2, this gen reads 1; rewrite the file for it"),
    ("format = 1\n", "", "format None, this gen reads 1; rewrite the file for it"),
    ("[options]", "[option]", "unknown table 'option', expected format, build, budgets, options, seed, kernel"),
    ("[build]\n", "[build]\n[build]\n", "Cannot declare ('build',) twice (at line 3, column 7)"),
    ("[options]\n", "", "'options' is missing; gen/matrix.toml shows every key"),
    ("layout = \"any\"\n", "", "'layout' is missing; gen/matrix.toml shows every key"),
    ("cpu_seconds = 60\n", "", "Budgets.__init__() missing 1 required positional argument: 'cpu_seconds'"),
    ("layout = \"any\"", "layout = \"any\"\nlayuot = 1", "unknown key 'layuot' in [[kernel]] fwd_any/any"),
    ("op = \"fwd\"", "op = \"forward\"", "op 'forward', expected one of fwd, bwd_input, bwd_weight"),
    ("ranks = [1]", "ranks = [4]", "index 'i32' and ranks [4], expected i32 or i64 and some of [1, 2, 3]"),
    ("\"fwd_any\"", "\"fwd_all\"", "template 'fwd_all', expected one in templates/: no fwd_all.py.j2 there"),
    ("ship.half", "ship.f64", "ship.f64, expected half or one of f16, bf16, f32, tf32"),
    ("m16n16k16w1s1", "16x16x16", "'16x16x16' is no config name; one looks like m128n64k32w4s3"),
    ("\"m16n16k16w1s1\"", "\"m16n16k16w1s1\", \"m16n16k16w1s1\"", "fwd1d_any-f16-m16n16k16w1s1 is listed twice; remove one"),
    ("[\"sm_90a\"]", "[\"sm_90a\", \"sm_90a\"]", "sm_90a is listed twice; remove one"),
    ("layout = \"any\"", "layout = \"any2\"",
     "the name 'fwd1d_any2-f16-m16n16k16w1s1' does not read back as its variant in 100 bytes; a layout is lower-case letters, a "
     "pin a number, a tile letter-number pairs"),
    ("layout = \"any\"", f"layout = \"{'a' * 90}\"",
     f"the name 'fwd1d_{'a' * 90}-f16-m16n16k16w1s1' does not read back as its variant in 100 bytes; a layout is lower-case "
     "letters, a pin a number, a tile letter-number pairs"),
])
def test_refused(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(MatrixError) as error:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert str(error.value) == f"{tmp_path / 'matrix.toml'}: {message}"


def test_unknown_target(tmp_path):
    with pytest.raises(MatrixError, match="unknown target 'sm_91'; known are sm_80, .*; add it to aotconv/target.py"):
        load(tmp_path, GOOD.replace("sm_90a", "sm_91"))


def test_kernel_from_two_tables(tmp_path):
    second = GOOD[GOOD.index("[[kernel]]"):].replace("fwd_any", "fwd_flat").replace("m16n16", "m32n16")
    with pytest.raises(MatrixError, match="fwd1d_any comes from two .* tables; give it one"):
        load(tmp_path, GOOD + second)


def test_no_file(tmp_path):
    with pytest.raises(MatrixError, match="No such file"):
        load_matrix(tmp_path / "none.toml")
