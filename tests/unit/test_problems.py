"""Problem files: rows -> problems as dispatch would see them, their classes, equal samples, refusals."""

import json
from collections import Counter

import pytest

from aotconv import geometry
from aotconv.problem import Layout, channels_last, contiguous, forward_problem
from aotconv.tuning import class_of, key, memory_format
from gen.problems import ProblemError, distinct, entries_of, read_problems, sample, write_problems

ROW = {"op": "convolution", "x": [2, 16, 9, 8], "w": [24, 16, 3, 3], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
       "transposed": False, "output_padding": [0, 0], "groups": 1, "bias": True}
TRANSPOSED = {**ROW, "w": [16, 6, 3, 3], "stride": [2, 2], "transposed": True, "output_padding": [1, 1], "groups": 2}


def only(row, **more):
    (entry,) = entries_of(row, **more)
    return entry


def test_forward_row():
    entry = only(ROW)
    assert entry.problem == forward_problem((2, 16, 9, 8), (24, 16, 3, 3), "bf16", padding=1, bias=True)
    assert (entry.op, entry.group) == ("fwd", "2d 3x3")


def test_format_and_dtype_of_the_command_fill_what_the_row_leaves_open():
    assert only(ROW, dtype="f16", format="contiguous").problem == forward_problem(
        (2, 16, 9, 8), (24, 16, 3, 3), "f16", padding=1, bias=True, last=False)
    named = {**ROW, "dtype": "tf32", "format": "channels_last"}
    assert only(named, dtype="f16", format="contiguous").problem == forward_problem(
        (2, 16, 9, 8), (24, 16, 3, 3), "f32", padding=1, bias=True, tf32=True)


def test_strides():
    x = only({**ROW, "strides": [4000, 1, 500, 20]}).problem.x
    assert x == Layout((2, 16, 9, 8), (4000, 1, 500, 20))
    assert only({**ROW, "strides": {"w": [144, 9, 3, 1]}}).problem.w == contiguous((24, 16, 3, 3))


def test_a_transposed_row_is_the_gradient_of_the_input():
    entry = only(TRANSPOSED)
    p = entry.problem
    assert p.op == "bwd_input" and (entry.op, entry.group) == ("fwd", "2d transposed")
    assert p.y == channels_last((2, 16, 9, 8)) and p.x == channels_last((2, 12, 18, 16)) and p.bias == contiguous((12,))


@pytest.mark.parametrize("mask, ops", [([True, True, True], ["bwd_input", "bwd_weight"]), ([False, True, False], ["bwd_weight"]),
                                       ([True, False, True], ["bwd_input"]), ([False, False, True], [])])
def test_a_backward_row_is_what_its_mask_asks(mask, ops):
    entries = entries_of({**ROW, "op": "convolution_backward", "output_mask": mask})
    assert [e.problem.op for e in entries] == ops == [e.op for e in entries]
    assert all(e.problem.bias is None and e.problem.y == channels_last((2, 24, 9, 8)) for e in entries)


def test_gradients_of_a_transposed_row():
    entries = entries_of({**TRANSPOSED, "op": "convolution_backward", "output_mask": [True, True, False]})
    assert [(e.op, e.problem.op) for e in entries] == [("bwd_input", "fwd"), ("bwd_weight", "bwd_weight")]
    assert all(e.transposed and e.kind in (geometry.BWD_INPUT, geometry.BWD_WEIGHT) for e in entries)


@pytest.mark.parametrize("w, more, expected", [
    ((24, 16, 3, 3), {}, "3x3"), ((24, 16, 1, 1), {}, "1x1"), ((24, 16, 1, 3), {}, "other"), ((24, 16, 5, 5), {}, "other"),
    ((24, 16, 3, 3), dict(stride=2), "strided"), ((24, 16, 1, 1), dict(stride=2), "strided"), ((24, 16, 2, 2), dict(stride=2), "patchify"),
    ((24, 16, 2, 2), dict(stride=2, padding=1), "strided"), ((24, 16, 3, 3), dict(dilation=2), "dilated"),
    ((24, 16, 1, 1), dict(dilation=2), "1x1"), ((16, 1, 3, 3), dict(groups=16), "depthwise"), ((32, 4, 3, 3), dict(groups=4), "grouped"),
])
def test_classes(w, more, expected):
    assert class_of(forward_problem((2, w[1] * more.get("groups", 1), 9, 8), w, **more)) == expected


def test_stems():
    assert class_of(forward_problem((2, 4, 9, 8), (24, 4, 3, 3))) == "stem"
    assert class_of(forward_problem((2, 3, 32, 32), (24, 3, 16, 16), stride=16)) == "stem"
    assert class_of(forward_problem((2, 5, 9, 8), (24, 5, 3, 3))) == "3x3"


def test_key():
    assert only(ROW).key == "fwd-bf16-x2x16x9x8-w24x16x3x3-y9x8-s1x1-p1x1-d1x1-g1-b1-l.l.l"
    assert only({**ROW, "bias": False}, format="contiguous").key == "fwd-bf16-x2x16x9x8-w24x16x3x3-y9x8-s1x1-p1x1-d1x1-g1-b0-c.c.c"


def test_every_part_of_a_problem_is_in_its_key():
    rows = [ROW, {**ROW, "x": [3, 16, 9, 8]}, {**ROW, "x": [2, 16, 8, 9]}, {**ROW, "w": [25, 16, 3, 3]}, {**ROW, "stride": [1, 2]},
            {**ROW, "padding": [1, 2]}, {**ROW, "dilation": [1, 2]}, {**ROW, "bias": False}, {**ROW, "dtype": "tf32"}, {**ROW, "dtype": "f32"},
            {**ROW, "format": "contiguous"}, {**ROW, "strides": [4000, 1, 500, 20]}, {**ROW, "w": [24, 8, 3, 3], "groups": 2}, TRANSPOSED,
            *({**ROW, "op": "convolution_backward", "output_mask": m} for m in ([True, False, False], [False, True, False]))]
    keys = [only(row).key for row in rows]
    assert len(set(keys)) == len(rows)


def test_an_unaligned_problem_has_no_key():
    p = only(ROW).problem
    for name in "xwy":
        tensor = getattr(p, name)
        assert key(p.__class__(**{**vars_of(p), name: Layout(tensor.sizes, tensor.strides, 8)})) is None


def vars_of(p):
    return {name: getattr(p, name) for name in p.__dataclass_fields__}


def test_a_dimension_of_one_element_has_no_memory_format():
    assert memory_format(Layout((1, 8, 1, 5), (999, 5, 777, 1))) == "c"
    assert memory_format(Layout((2, 8, 1, 1), (8, 1, 999, 999))) == "c"
    assert memory_format(Layout((2, 8, 1, 3), (24, 1, 999, 8))) == "l"
    assert memory_format(Layout((2, 8, 1, 3), (48, 1, 999, 16))) == "48x1x0x16"


def test_round_trip(tmp_path):
    rows = [ROW, TRANSPOSED, {**ROW, "op": "convolution_backward", "output_mask": [True, True, False], "model": "m"}]
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entries = read_problems([first], dtype="f16", format="channels_last")
    write_problems(second, entries)
    assert [(e.problem, e.kind, e.transposed) for e in read_problems([second], dtype="f32", format="contiguous")] == \
           [(e.problem, e.kind, e.transposed) for e in entries]
    assert len(second.read_text().splitlines()) == 3  # a backward row is one row, whatever its mask asks


@pytest.mark.parametrize("change, message", [
    ({"op": "conv"}, "line 2: op 'conv', expected convolution"), ({"dtype": "int8"}, "line 2: dtype 'int8' and format"),
    ({"format": "NHWC"}, "format 'NHWC', expected one of"), ({"x": [2, 15, 9, 8]}, "line 2: input has 15 channels"),
    ({"op": "convolution_backward"}, "with an output_mask of three"), ({"x": None}, "line 2: "), ({"x": [2, 16, 1, 1], "padding": [0, 0]}, "nothing to compute"),
])
def test_refusals_name_the_line(tmp_path, change, message):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(ProblemError, match=message):
        read_problems([path])


def test_a_line_that_is_no_row(tmp_path):
    path = tmp_path / "p.jsonl"
    for text, message in (("{", "line 1: "), ("[]", "line 1: "), ("{}", "the row has no op, x, w")):
        path.write_text(text + "\n")
        with pytest.raises(ProblemError, match=message):
            read_problems([path])


def many():
    plain = [only({**ROW, "x": [n, 16, 9, 8]}) for n in range(1, 41)]
    return plain + plain[:5] + [only({**ROW, "x": [n, 16, 9, 8], "w": [8, 16, 1, 1]}) for n in range(1, 4)] + [only(TRANSPOSED)]


def test_distinct_keeps_the_first_of_each():
    assert [e.problem for e in distinct(many())] == [e.problem for e in many()[:40] + many()[45:]]


def test_a_sample_is_equal_and_repeats():
    chosen = sample(many(), 9, seed=3)
    assert Counter(e.group for e in chosen) == {"2d 3x3": 5, "2d 1x1": 3, "2d transposed": 1}
    assert Counter(e.group for e in chosen[:3]) == {"2d 3x3": 1, "2d 1x1": 1, "2d transposed": 1}
    assert [e.key for e in sample(many(), 9, seed=3)] == [e.key for e in chosen] != [e.key for e in sample(many(), 9, seed=4)]
    assert len(sample(many(), 999)) == 44
