"""Admission: every artifact of the device's target against a float64 reference, on the device, from built packs.

    python -m gen admit [--wheel X.whl | --out DIR] [--records DIR] [--only TEXT]

Needs torch and the standard library; no Triton, no jinja2. Each artifact runs each of its cases on random data, judged
by the rounding bound, and on small integers, judged exactly. Inputs lie inside NaNs, the output and its surroundings
are poisoned. Writes RECORDS/<target>/admission.tsv, keyed by the SHA-256 of the very bytes that ran.
"""

import argparse
import datetime
import sys
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

import torch

from aotconv.families import family, trials
from aotconv.geometry import DTYPE_CODES
from aotconv.pack import Artifact
from aotconv.plan import WORKSPACE, plan_words, result_of
from aotconv.problem import Layout, Problem
from gen.cases import cases, storage_elements
from gen.reference import convolve, error_over_bound
from gen.variants import parse_variant

FIELDS = ("variant", "sha256", "result", "problems", "worst", "device", "driver", "date")
TORCH_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
MARGIN = 64  # poisoned elements on either side of every tensor
SLOTS = {"x": 0, "w": 1, "b": 2, "y": 3}


def main(arguments=None) -> int:
    """Run the admission; 1 when any artifact fails."""
    args = parse_arguments(arguments)
    if not torch.cuda.is_available():
        print("admit needs a GPU: torch.cuda.is_available() is False here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        runtime = open_runtime(args, Path(folder))
        library = runtime.library(0)
        if library is None:
            return 2
        artifacts = [a for a in library.pack.artifacts if args.only in a.variant]
        if args.one_of_each:
            artifacts = list({a.kernel: a for a in reversed(artifacts)}.values())
        rows = [examine(runtime, artifact, args.problems) for artifact in progress(artifacts)]
    failed = [row for row in rows if row["result"] != "pass"]
    print(f"{library.pack.target}: {len(rows) - len(failed)} of {len(rows)} pass")
    if args.problems is None:
        path = args.records / library.pack.target / "admission.tsv"
        write_records(path, rows)
        print(f"records in {path}")
    return int(bool(failed))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m gen admit", description="Test built artifacts on this GPU.")
    parser.add_argument("--wheel", type=Path, help="take the artifacts from this wheel")
    parser.add_argument("--out", type=Path, default=Path("generated"), help="take them from this build folder")
    parser.add_argument("--records", type=Path, default=Path(__file__).with_name("records"))
    parser.add_argument("--only", default="", help="artifacts whose name contains this")
    parser.add_argument("--one-of-each", action="store_true", help="one artifact of each kernel, for memory checkers")
    parser.add_argument("--problems", type=int, metavar="N", help="the first N problems of each: a trial, no record")
    return parser.parse_args(arguments)


def open_runtime(args, folder: Path, unadmitted: bool = True):
    """A runtime over the wheel's or the build folder's artifacts, with `unadmitted` also those that no record admits."""
    import os

    if unadmitted:
        os.environ["AOTCONV_UNADMITTED"] = "1"
    from aotconv.runtime import Runtime

    source = args.out
    if args.wheel:
        with zipfile.ZipFile(args.wheel) as wheel:
            wheel.extractall(folder)
        source = folder / "aotconv" / "generated"
    runtime = Runtime(source)
    if runtime.start() is None:
        raise SystemExit(runtime.failed)
    torch.cuda.current_stream()
    return runtime


def progress(artifacts):
    for number, artifact in enumerate(artifacts, 1):
        print(f"\r{number}/{len(artifacts)} {artifact.variant:60}", end="", file=sys.stderr, flush=True)
        yield artifact
    print(file=sys.stderr)


def examine(runtime, artifact: Artifact, limit: int | None = None) -> dict:
    """The record of one artifact."""
    kernel = parse_variant(artifact.variant).kernel
    problems = cases(kernel.op, kernel.rank, kernel.layout, kernel.pin, kernel.index, artifact.dtype)[:limit]
    handle = runtime.load_artifact(0, artifact)
    worst, result = 0.0, "pass" if handle else "fail: does not load"
    for problem in problems if handle else ():
        try:
            reason = runtime.libraries[0].candidate(artifact).refusal(problem)
            error = judge(runtime, artifact, handle, problem) if reason is None else reason
        except RuntimeError as failure:
            error = str(failure).splitlines()[0]
        if isinstance(error, str) or error > 1:
            result = f"fail: {error if isinstance(error, str) else f'{error:.3g} of the bound'} on {describe(problem)}"
            print(f"\n{artifact.variant}: {result}", file=sys.stderr)
            break
        worst = max(worst, error)
    return {
        "variant": artifact.variant, "sha256": artifact.sha256, "result": result, "problems": 2 * len(problems),
        "worst": f"{worst:.3f}", "device": torch.cuda.get_device_name(0).replace("\t", " "),
        "driver": runtime.native.driver_version(), "date": datetime.date.today().isoformat(),
    }


def describe(p: Problem) -> str:
    sizes = "x".join(map(str, p.x.sizes)) + " * " + "x".join(map(str, p.w.sizes))
    return f"{p.op} {sizes} s{p.stride} p{p.padding} d{p.dilation} g{p.groups} strides {p.x.strides}"


def judge(runtime, artifact: Artifact, handle: int, problem: Problem):
    """Largest error over the bound, in both kinds of data; a sentence where integers are not exact or memory was touched."""
    worst = 0.0
    for integers in (False, True):
        tensors, reference, magnitude = data(problem, integers)
        for how in ({}, *trials(artifact)):
            buffer, result = poisoned(result_of(problem), TORCH_DTYPES[problem.dtype])
            run(runtime, artifact, handle, problem, {**tensors, RESULT[problem.op]: result}, how)
            if not torch.equal(buffer.isnan(), untouched(buffer, result)):
                return f"writes outside its output, or leaves a part of it{told(how)}"
            if integers and not torch.equal(result, reference.to(result.dtype)):
                return f"integers differ in {(result != reference.to(result.dtype)).sum().item()} of {result.numel()} elements{told(how)}"
            worst = max(worst, error_over_bound(result, reference, magnitude, problem.values["reduction"], problem.tf32))
    return worst


def told(how: dict) -> str:
    return f" with {how}" if how else ""


RESULT = {"fwd": "y", "bwd_input": "x", "bwd_weight": "w"}


def run(runtime, artifact: Artifact, handle: int, problem: Problem, tensors: dict, how: dict):
    """Launch the artifact on given tensors and wait. how: what its family's `trials` asks for."""
    slots = {name: slot for name, slot in SLOTS.items() if name in tensors}
    steps, workspace, zeroed = family(artifact.kernel).launch(artifact, problem, handle, slots, **how)
    plan = plan_words(problem, DTYPE_CODES[problem.dtype], steps, workspace, zeroed)
    scratch = torch.full((max(workspace, 1),), 0xFF, dtype=torch.uint8, device="cuda")  # NaNs, whatever the type
    pointers = [None] * 5
    pointers[WORKSPACE] = scratch.data_ptr()
    for name, slot in slots.items():
        pointers[slot] = tensors[name].data_ptr()
    runtime.native.launch(plan, 0, torch.cuda.current_stream().cuda_stream, pointers)
    torch.cuda.synchronize()


@lru_cache(maxsize=32)
def data(problem: Problem, integers: bool):
    """Inputs inside NaNs, the float64 result, and the result of absolute values: the same for every artifact."""
    generator = torch.Generator("cuda").manual_seed(len(repr(problem)) + integers)
    layouts = {"x": problem.x, "w": problem.w, "y": problem.y}
    del layouts[RESULT[problem.op]]
    if problem.bias:
        layouts["b"] = problem.bias
    tensors = {name: embedded(layout, TORCH_DTYPES[problem.dtype], generator, integers) for name, layout in layouts.items()}
    operands = {name: t for name, t in tensors.items() if name != "b"}
    absolute = {name: t.double().abs() for name, t in operands.items()}
    bias = tensors.get("b")
    reference = convolve(problem.op, problem, **operands, bias=bias)
    magnitude = convolve(problem.op, problem, **absolute, bias=None if bias is None else bias.abs())
    return tensors, reference, magnitude


def embedded(layout: Layout, dtype, generator, integers: bool):
    """A tensor of random values, or of integers from -3 to 3, in the middle of NaNs."""
    _, tensor = poisoned(layout, dtype)
    if integers:
        values = torch.randint(-3, 4, layout.sizes, device="cuda", generator=generator)
    else:
        values = torch.randn(layout.sizes, device="cuda", generator=generator)
    tensor.copy_(values)
    return tensor


def poisoned(layout: Layout, dtype):
    """(buffer, view): NaNs, and the place for a tensor of this layout inside them, 16-byte aligned unless it says less."""
    offset = MARGIN + (layout.align // dtype.itemsize if layout.align < 16 else 0)
    buffer = torch.full((storage_elements(layout) + 2 * MARGIN + 8,), float("nan"), dtype=dtype, device="cuda")
    return buffer, buffer.as_strided(layout.sizes, layout.strides, offset)


def untouched(buffer, result):
    """True at every element of the buffer that the result does not own."""
    mask = torch.ones(buffer.shape, dtype=torch.bool, device=buffer.device)
    mask.as_strided(result.shape, result.stride(), result.storage_offset()).fill_(False)
    return mask


def write_records(path: Path, rows: list[dict]):
    """Merge into the records file: a variant has one row, its newest."""
    from gen.files import write_if_changed

    known = {row["variant"]: row for row in read_records(path)}
    known.update({row["variant"]: row for row in rows})
    lines = ["\t".join(FIELDS)] + ["\t".join(str(known[v][f]) for f in FIELDS) for v in sorted(known)]
    write_if_changed(path, "\n".join(lines) + "\n")


def read_records(path: Path) -> list[dict]:
    """The rows of a records file; none when it is not there."""
    if not path.exists():
        return []
    header, *lines = path.read_text().splitlines()
    if tuple(header.split("\t")) != FIELDS:
        raise ValueError(f"{path} has the columns {header!r}, expected {' '.join(FIELDS)}; move it away and admit again")
    return [dict(zip(FIELDS, line.split("\t"))) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
