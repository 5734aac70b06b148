"""Records -> table: a record stands for the bytes that it names and for no others."""

import pytest

from gen.table import RecordError, make_table, read_admissions, render_table

HEADER = "variant\tsha256\tresult\tproblems\tworst\tdevice\tdriver\tdate\n"
REST = "12\t0.5\tNVIDIA H200\t12080\t2026-01-01\n"


def admissions(tmp_path, text):
    path = tmp_path / "admission.tsv"
    path.write_text(text)
    return read_admissions(path)


def test_table(tmp_path):
    records = admissions(tmp_path, HEADER + f"a\t11\tpass\t{REST}b\t22\tfail: wrong at 3\t{REST}c\t33\tpass\t{REST}d\t44\tpass\t{REST}")
    table = make_table("sm_90a", {"d": "44", "b": "22", "c": "00", "a": "11"}, records)
    assert render_table(table) == """\
{
 "admitted": {
  "a": "11",
  "d": "44"
 },
 "aten": {},
 "costs": {},
 "format": 1,
 "target": "sm_90a",
 "tuned": {}
}
"""


@pytest.mark.parametrize("text, message", [
    ("", "its first line is"),
    ("variant\tsha256\n", "its first line is"),
    (HEADER + f"a\t11\tok\t{REST}", "line 2: result 'ok', expected 'pass' or 'fail: REASON'; a line has variant, sha256"),
    (HEADER + f"a\t11\tpass\t{REST}a\t12\tpass\t{REST}", "its variants are not sorted or not unique"),
    (HEADER + f"b\t11\tpass\t{REST}a\t12\tpass\t{REST}", "its variants are not sorted or not unique"),
    (HEADER + "a\t11\tpass\n", "line 2: not enough values"),
    (HEADER + f"a\t11\tpass\tmany{REST}", "line 2: invalid literal"),
    (HEADER + f"<<<<<<< HEAD\na\t11\tpass\t{REST}", "line 2: "),
])
def test_unreadable(tmp_path, text, message):
    with pytest.raises(RecordError, match=message):
        admissions(tmp_path, text)
