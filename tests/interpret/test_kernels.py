"""Every portable kernel structure on the CPU, through the very words of its plan, against the float64 reference."""

from dataclasses import replace
from math import inf, prod

import pytest
import torch

from aotconv.families import family
from aotconv.pack import Artifact
from aotconv.plan import KIND_I32, KIND_I64, KIND_NULL, WORKSPACE, plan_words, result_of
from gen.cases import cases, storage_elements
from gen.matrix import load_matrix
from gen.reference import convolve, error_over_bound
from gen.render import environment, render_kernel
from gen.structure import argument
from gen.variants import parse_config

MATRIX = load_matrix()
TILES = {"dw": "m64n16w1s1", "dwt": "m4n32h4v4w1s1", "dwany": "m64n8w1s1"}  # every other kernel: TILE
TILE = "m64n32k32w1s1"                              # large: the interpreter's time goes by programs and steps
PORTABLE = {k: e for k, e in MATRIX.kernels.items() if e.template.split("_")[1] in ("cl", "flat", "any", "dw", "dwt", "dwany")}
SMALL_WORK = 1e6  # multiply-adds that the interpreter may be asked for
RESULT = {"fwd": "y", "bwd_input": "x", "bwd_weight": "w"}
HEAD = 8          # words of a step before its parameters


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("kernel", PORTABLE, ids=lambda k: k.name)
def test_kernel(kernel, sources):
    function, names = load(kernel, PORTABLE[kernel], sources)
    config = parse_config(TILES.get(kernel.layout, TILE))
    artifact = described(kernel, config, names, function)
    chosen = [p for p in cases(kernel.op, kernel.rank, kernel.layout, kernel.pin, kernel.index, "f32") if is_small(p)]
    assert chosen
    for number, problem in enumerate(chosen[:3]):
        check(function, names, artifact, problem, integers=number > 0)


def is_small(p) -> bool:
    return p.flops < SMALL_WORK and storage_elements(p.x) < 1e6


def load(kernel, entry, folder):
    """The rendered kernel as an interpreted function, and its arguments' names."""
    import importlib.util

    path = folder / f"{kernel.name}.py"
    path.write_text(render_kernel(environment(), kernel, entry))
    spec = importlib.util.spec_from_file_location(kernel.name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, kernel.name)
    return function, list(function.arg_names)


def described(kernel, config, names, function) -> Artifact:
    """The artifact that this kernel would compile to."""
    arguments = tuple(argument(n, kernel.index, (), "f32") for n in names if n not in (*config.constants, "PRECISION"))
    return Artifact(kernel.name, kernel.name, "f32", config.constants, kernel.name, 1, 32, 0, 1, 0, 32, 0, arguments, "")


def check(function, names, artifact, problem, integers):
    generator = torch.Generator().manual_seed(1)
    layouts = {"x": problem.x, "w": problem.w, "y": problem.y}
    tensors = {name: filled(layout, generator, integers) for name, layout in layouts.items()}
    if problem.bias:
        tensors["b"] = filled(problem.bias, generator, integers)
    tensors[RESULT[problem.op]].fill_(float("nan"))
    run(function, names, artifact, problem, tensors)
    operands = {name: t for name, t in tensors.items() if name not in ("b", RESULT[problem.op])}
    bias = tensors.get("b")
    reference = convolve(problem.op, problem, **operands, bias=bias)
    result = tensors[RESULT[problem.op]]
    if integers:
        torch.testing.assert_close(result.double(), reference, rtol=0, atol=0)
        return
    magnitude = convolve(problem.op, problem, **{n: t.abs() for n, t in operands.items()}, bias=None if bias is None else bias.abs())
    assert error_over_bound(result, reference, magnitude, problem.values["reduction"], False) < 1 < inf


def filled(layout, generator, integers):
    """A float32 tensor of this layout, NaN between its elements."""
    tensor = torch.full((storage_elements(layout),), float("nan")).as_strided(layout.sizes, layout.strides)
    values = torch.randint(-3, 4, layout.sizes, generator=generator) if integers else torch.randn(layout.sizes, generator=generator)
    return tensor.copy_(values)


def run(function, names, artifact, problem, tensors):
    """The plan's one step, its parameters turned back into Python values."""
    order = [name for name in ("x", "w", "y", "b") if name in tensors]
    slots = {name: number for number, name in enumerate(order)}
    steps, workspace, _ = family(artifact.kernel).launch(artifact, problem, 1, slots)
    words = plan_words(problem, 6, steps, workspace)
    step = steps[0]
    assert words[-len(step):] == step and words[2] == len(result_of(problem).sizes)
    memory = torch.zeros(max(workspace, 16), dtype=torch.uint8)
    values = [value_of(kind, value, [tensors[n] for n in order], memory, artifact, i)
              for i, (kind, value) in enumerate(zip(step[HEAD::2], step[HEAD + 1 :: 2]))]
    given = dict(zip([a.name for a in artifact.arguments], values))
    constants = {**artifact.tile, **({"PRECISION": "ieee"} if "PRECISION" in names else {})}
    function[(prod(step[1:4]),)](**given, **constants)


def value_of(kind, value, tensors, memory, artifact, position):
    if kind in (KIND_I32, KIND_I64):
        return value
    if kind == KIND_NULL:
        return tensors[0]  # a pointer that must not be read; the interpreter wants one
    if kind == WORKSPACE:
        dtype = torch.int32 if artifact.arguments[position].name == "count_ptr" else torch.float32
        return memory[value:].view(dtype) if len(memory[value:]) >= 4 else torch.zeros(1, dtype=dtype)
    return tensors[kind]


def test_splits_are_summed_in_order():
    """bwd_weight over many pixels: several programs share a tile, and the sum is exact on integers."""
    from aotconv import weight

    kernel = next(k for k in PORTABLE if k.name == "bwdw2d_any")
    problem = cases("bwd_weight", 2, "any", 0, "i32", "f32")[0]
    big = replace(problem, x=replace(problem.x, sizes=(1, 1, 40, 40), strides=(1600, 1600, 40, 1)),
                  y=replace(problem.y, sizes=(1, 1, 40, 40), strides=(1600, 1600, 40, 1)))
    function, names = load(kernel, PORTABLE[kernel], __import__("pathlib").Path(__import__("tempfile").mkdtemp()))
    artifact = described(kernel, parse_config("m16n16k16w1s1"), names, function)
    assert weight.split(weight.prepare(artifact), weight.shape_of(big))[0] > 1
    check(function, names, artifact, big, integers=True)
