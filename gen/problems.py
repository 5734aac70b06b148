"""Problem files: JSON lines in the row format of the captured shapes -> problems. Standard library only.

A row: op (`convolution`, `convolution_backward`), x and w (sizes as PyTorch keeps them), stride, padding, dilation,
transposed, output_padding, groups, bias; output_mask on backward rows; optional model, count, dtype (f16, bf16, f32,
tf32), format (contiguous, channels_last: of x and w) and strides (of x, or an object with those of x and w).
A backward row is `bwd_input` and `bwd_weight` by its mask.
"""

import json
import random
from collections import defaultdict
from dataclasses import dataclass

from aotconv import geometry
from aotconv.problem import Layout, Problem, channels_last, contiguous
from aotconv.tuning import class_of, key

KINDS = {"fwd": geometry.FWD, "bwd_input": geometry.BWD_INPUT, "bwd_weight": geometry.BWD_WEIGHT}
FORMATS = {"contiguous": contiguous, "channels_last": channels_last}
DTYPES = ("f16", "bf16", "f32", "tf32")
DEFAULT_FORMAT = {1: "contiguous", 2: "channels_last", 3: "contiguous"}
NEEDED = ("op", "x", "w", "stride", "padding", "dilation", "transposed", "output_padding", "groups", "bias")


class ProblemError(ValueError):
    """A problem file that cannot be read: names the line, what was found and what was expected."""


@dataclass(frozen=True)
class Entry:
    """One convolution that a row asks for. kind and transposed say how aten is called for it; row is where it is from."""

    problem: Problem
    kind: int
    transposed: bool
    output_padding: tuple[int, ...]
    row: dict

    @property
    def key(self) -> str:
        return key(self.problem)

    @property
    def group(self) -> str:
        """Rank and class, by which samples are drawn and results are summed up."""
        return f"{self.problem.rank}d {'transposed' if self.transposed else class_of(self.problem)}"

    @property
    def op(self) -> str:
        """What the caller asks for: the forward pass of a transposed convolution is `fwd` here."""
        return next(op for op, kind in KINDS.items() if kind == self.kind)

    def __hash__(self):
        return hash((self.problem, self.kind, self.transposed))


def read_problems(paths, dtype: str | None = None, format: str | None = None, ops=tuple(KINDS)) -> list[Entry]:
    """Every convolution of the files, in order. dtype and format fill what a row does not say (bf16; by rank)."""
    found = []
    for path in paths:
        for number, line in enumerate(open(path), 1):
            try:
                found += [e for e in entries_of(json.loads(line), dtype, format) if e.op in ops]
            except (ValueError, TypeError, AttributeError, geometry.Uncovered) as error:
                raise ProblemError(f"{path}, line {number}: {error}; the format is described in gen/problems.py") from None
    return found


def entries_of(row: dict, dtype: str | None = None, format: str | None = None) -> list[Entry]:
    """The convolutions that one row asks for."""
    missing = [name for name in NEEDED if name not in row]
    if missing:
        raise ValueError(f"the row has no {', '.join(missing)}")
    row = {**row, "dtype": row.get("dtype", dtype or "bf16")}
    row.setdefault("format", format or DEFAULT_FORMAT.get(len(row["stride"]), "contiguous"))
    if row["dtype"] not in DTYPES or row["format"] not in FORMATS:
        raise ValueError(f"dtype {row['dtype']!r} and format {row['format']!r}, expected one of {DTYPES} and of {tuple(FORMATS)}")
    return [entry(row, kind) for kind in kinds_of(row)]


def kinds_of(row: dict) -> list[int]:
    if row["op"] == "convolution":
        return [geometry.FWD]
    if row["op"] != "convolution_backward" or len(row.get("output_mask", ())) != 3:
        raise ValueError(f"op {row['op']!r}, expected convolution, or convolution_backward with an output_mask of three")
    return [kind for kind, asked in zip((geometry.BWD_INPUT, geometry.BWD_WEIGHT), row["output_mask"]) if asked]


def entry(row: dict, kind: int) -> Entry:
    """The convolution of one kind that a row asks for."""
    lists = [tuple(row[name]) for name in ("stride", "padding", "dilation", "output_padding")]
    code = geometry.DTYPE_CODES["f32" if row["dtype"] == "tf32" else row["dtype"]]
    x, w = layout(row, "x"), layout(row, "w")
    bias = contiguous((bias_size(row),)) if row["bias"] and kind == geometry.FWD else None
    call = geometry.Call(kind, row["transposed"], row["dtype"] == "tf32", False, row["groups"], *lists, 0, (code,) * 3, (x, w, bias))
    if kind != geometry.FWD:
        grad = gradient(call, x, w)
        tensors = (grad, w, x) if kind == geometry.BWD_INPUT else (grad, x, w)
        call = geometry.Call(**{**call.__dict__, "tensors": tensors})
    return Entry(geometry.problem_of(call), kind, row["transposed"], lists[3], row)


def layout(row: dict, name: str) -> Layout:
    """x or w: dense in the row's format, or with the strides that it gives."""
    strides = row.get("strides") or {}
    strides = strides if isinstance(strides, dict) else {"x": strides}
    if strides.get(name):
        return Layout(tuple(row[name]), tuple(strides[name]))
    return FORMATS[row["format"]](row[name])


def bias_size(row: dict) -> int:
    return row["w"][1] * row["groups"] if row["transposed"] else row["w"][0]


def gradient(call: geometry.Call, x: Layout, w: Layout) -> Layout:
    """The gradient of the output, in the format that the forward pass gives its output."""
    return geometry.result_layout(geometry.forward_sizes(call, x, w), geometry.result_is_channels_last(x, w))


def write_problems(path, entries):
    """The rows of the entries, each once."""
    rows = dict.fromkeys(json.dumps(e.row) for e in entries)
    path.write_text("".join(row + "\n" for row in rows))


def distinct(entries) -> list[Entry]:
    """The first entry of each problem."""
    found = {}
    for e in entries:
        found.setdefault(e.key, e)
    return list(found.values())


def sample(entries, count: int, seed: int = 0) -> list[Entry]:
    """`count` distinct problems, as equally from each group as they are there; groups take turns, so a part is equal too."""
    groups = defaultdict(list)
    for e in distinct(entries):
        groups[e.op, e.group].append(e)
    shuffler = random.Random(seed)
    for name in sorted(groups):
        shuffler.shuffle(groups[name])
    turns = [groups[name][turn] for turn in range(max(map(len, groups.values()), default=0))
             for name in sorted(groups) if turn < len(groups[name])]
    return turns[:count]


def problem_from(text: str) -> Problem:
    """The problem that aotconv.tuning.key spelled."""
    op, dtype, *numbers, groups, bias, memory = text.split("-")
    x, w, y, stride, padding, dilation = (tuple(map(int, n[1:].split("x"))) for n in numbers)
    y = (x[0], w[0], *y)
    x, w, y = (laid_out(sizes, how) for sizes, how in zip((x, w, y), memory.split("."), strict=True))
    channels = x.sizes[1] if op == "bwd_input" else w.sizes[0]
    return Problem(op, "f32" if dtype == "tf32" else dtype, x, w, y, stride, padding, dilation, int(groups[1:]),
                   contiguous((channels,)) if bias == "b1" else None, dtype == "tf32")


def laid_out(sizes, how: str) -> Layout:
    """A tensor in the memory format that a key names."""
    made = {"c": contiguous, "l": channels_last}.get(how)
    return made(sizes) if made else Layout(sizes, tuple(map(int, how.split("x"))))
