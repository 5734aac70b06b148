"""One kernel's variants, compiled for one target. The only module that imports Triton.

    python -m gen.compile --out DIR --kernel NAME --target T --options JSON --spill-limit BYTES CONFIG...

Writes DIR/obj/T/VARIANT.{cubin,hsaco} and, last, VARIANT.json, each as it finishes. A variant that does not fit the
target (shared memory, spills) leaves a .json with the reason and no binary. One that fails to compile is named, and
the exit status is 1 after all the others were written. One whose inputs did not change is kept.
"""

import argparse
import ast
import hashlib
import json
import os
import sys
import tempfile
import time
import types
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from aotconv.pack import LAUNCH_ABI, Argument, Artifact, artifact_row
from aotconv.target import Target
from gen import binary
from gen.files import replace_file
from gen.structure import WORKSPACE_POINTERS, argument
from gen.toolchain import CLEARED, ENVIRONMENT
from gen.variants import Variant, parse_config, parse_kernel

FORMAT = 1
# Every module of ours that an edge loads; the build graph makes each an input of every compile edge.
MODULES = (
    "aotconv/__init__.py", "aotconv/pack.py", "aotconv/problem.py", "aotconv/target.py", "gen/__init__.py", "gen/binary.py",
    "gen/compile.py", "gen/files.py", "gen/matrix.py", "gen/structure.py", "gen/toolchain.py", "gen/variants.py",
)
TRITON_TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "tf32": "fp32"}
PRECISION = {"f32": "ieee", "tf32": "tf32"}
PARAMETER_BYTES = {"ptr": 8, "i32": 4, "i64": 8, "scratch": 8, "im2col": 128, "tiled": 128, "unread32": 4, "unread64": 8}
MAX_REGISTERS = "BLOCK_R"  # the tile's letter r: registers a thread may have, so that more programs fit a multiprocessor
SCRATCH = (Argument("global_scratch", "scratch"), Argument("profile_scratch", "scratch"))


@dataclass(frozen=True)
class Job:
    """What one edge compiles, and everything that its bytes depend on besides the toolchain."""

    source: Path
    target: Target
    options: dict
    spill_limit: int
    toolchain: str

    @cached_property
    def text(self) -> str:
        return self.source.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def digest(self, variant: Variant) -> str:
        """Identity of the variant's inputs: what the compiler is told, the compiler, and the code that judges the result."""
        parts = [FORMAT, LAUNCH_ABI, [f.name for f in fields(Artifact)], self.toolchain, self.text, variant.name,
                 asdict(read_call(self, variant)), self.target.name, self.target.arch, self.target.warp_size,
                 self.spill_limit, self.target.shared_limit, Path(__file__).read_text(), Path(binary.__file__).read_text()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Call:
    """What the compiler is told of one variant: parameter names in order, literals, run-time arguments, options.

    maps: name of a tensor map -> (kind, dimensions of its tensor, box). A kernel with maps is Gluon's, else Triton's.
    """

    names: tuple[str, ...]
    constants: dict
    arguments: tuple[Argument, ...]
    options: dict
    maps: dict


def read_call(job: Job, variant: Variant) -> Call:
    """Read from the source's text, so that what is current is told without Triton."""
    names = next(tuple(a.arg for a in node.args.args) for node in job.tree.body
                 if isinstance(node, ast.FunctionDef) and node.name == variant.kernel.name)
    listed = {node.targets[0].id: ast.literal_eval(node.value) for node in job.tree.body
              if isinstance(node, ast.Assign) and node.targets[0].id in ("ALIGNED", "MAPS")}
    tile = variant.config.constants
    constants = {**tile, "PRECISION": PRECISION.get(variant.dtype), "STAGES": variant.config.stages, "WARPS": variant.config.warps}
    constants = {name: value for name, value in constants.items() if name in names}
    maps = {name: (kind, rank, tuple(side_of(side, tile) for side in box)) for name, (kind, rank, box) in listed.get("MAPS", {}).items()}
    arguments = tuple(a for n in names if n not in constants for a in expand(n, maps, variant, listed["ALIGNED"]))
    return Call(names, constants, arguments, compile_options(job, variant), maps)


def side_of(side, tile: dict) -> int:
    """One side of a box: a number, a tile's name, or several of these, of which the smallest counts."""
    return min(side_of(s, tile) for s in side) if isinstance(side, tuple) else tile.get(side, side)


def expand(name: str, maps: dict, variant: Variant, aligned: tuple[str, ...]):
    """The binary's parameters for one argument of the source. A tensor map brings its sizes and strides, which our
    kernels do not read."""
    if name in maps:
        kind, rank, _ = maps[name]
        yield Argument(name, kind)
        yield from (Argument(f"{name}_size{i}", "unread32") for i in range(rank))
        yield from (Argument(f"{name}_stride{i}", "unread64") for i in range(rank))
    else:
        yield argument(name, variant.kernel.index, aligned, variant.dtype)


def main(arguments=None) -> int:
    """Compile in a child process, so that a compiler that is killed can still be named."""
    args = parse_arguments(arguments)
    toolchain = json.loads((args.out / "toolchain" / "triton.json").read_text())["digest"]
    target = Target.parse(args.target)
    job = Job(args.out / "kernels" / f"{args.kernel}.py", target, json.loads(args.options), args.spill_limit, toolchain)
    kernel = parse_kernel(args.kernel)
    variants = [Variant(kernel, dtype, parse_config(config)) for dtype, _, config in (v.partition("-") for v in args.variants)]
    folder = args.out / "obj" / target.name
    folder.mkdir(parents=True, exist_ok=True)
    stale = [v for v in variants if not is_current(folder, v, target, job.digest(v))]
    if not stale:
        return 0
    with tempfile.NamedTemporaryFile("r") as progress:
        child = os.fork()
        if child == 0:
            os._exit(compile_all(job, stale, folder, progress.name))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            explain_signal(-status, progress.read(), target)
    return int(status != 0)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m gen.compile", description="Compile one kernel's variants.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--options", default="{}")
    parser.add_argument("--spill-limit", type=int, required=True)
    parser.add_argument("variants", nargs="+", metavar="DTYPE-CONFIG")
    return parser.parse_args(arguments)


def is_current(folder: Path, variant: Variant, target: Target, digest: str) -> bool:
    """Whether the variant's files stand and come from these very inputs."""
    try:
        row = json.loads((folder / f"{variant.name}.json").read_text())
        if row["inputs"] != digest:
            return False
        if "dropped" in row:
            return True
        return hashlib.sha256((folder / f"{variant.name}.{target.binary}").read_bytes()).hexdigest() == row["sha256"]
    except (OSError, ValueError, KeyError):
        return False


def explain_signal(signal: int, variant: str, target: Target):
    cause = "out of memory, most likely: set MAX_JOBS lower" if signal == 9 else f"signal {signal}"
    print(f"the compiler was killed while compiling {variant} for {target.name} ({cause})", file=sys.stderr)


def compile_all(job: Job, variants: list[Variant], folder: Path, progress: str) -> int:
    """Compile each variant in an empty Triton cache that is deleted afterwards; 1 when any failed."""
    with tempfile.TemporaryDirectory() as cache:
        clean_environment(cache)
        failed = 0
        for variant in variants:
            Path(progress).write_text(variant.name)
            try:
                write_artifact(folder, variant, job, *compile_variant(job, variant))
            except Exception as error:  # a compiler may raise anything; the others must still be written
                failed = 1
                print(f"{variant.name} for {job.target.name} does not compile: {type(error).__name__}: {error}", file=sys.stderr)
        return failed


def clean_environment(cache: str):
    """Only the variables that the toolchain's identity knows."""
    for name in [name for name in os.environ if name.startswith(CLEARED)]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT, TRITON_CACHE_DIR=cache)


def compile_variant(job: Job, variant: Variant):
    """(Artifact, binary, seconds of triton.compile)."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    call = read_call(job, variant)
    kinds = {a.name: triton_type(a, call, variant) for a in call.arguments}
    source = (GluonASTSource if call.maps else ASTSource)(
        getattr(load_module(job), variant.kernel.name), {n: kinds.get(n, "constexpr") for n in call.names},
        constexprs={(call.names.index(n),): value for n, value in call.constants.items()},
        attrs={(call.names.index(a.name),): [["tt.divisibility", a.divisible]] for a in call.arguments if a.divisible > 1},
    )
    target = GPUTarget(job.target.backend, job.target.arch, job.target.warp_size)
    started = time.perf_counter()
    kernel = triton.compile(source, target=target, options=call.options)
    seconds = time.perf_counter() - started
    return describe(kernel, variant, job.target, call), kernel.asm[job.target.binary], seconds


def triton_type(argument: Argument, call: Call, variant: Variant) -> str:
    """How Triton spells an argument's type."""
    if argument.kind == "ptr":
        return WORKSPACE_POINTERS.get(argument.name, f"*{TRITON_TYPES[variant.dtype]}")
    if argument.name not in call.maps:
        return argument.kind
    kind, rank, box = call.maps[argument.name]
    element = TRITON_TYPES[variant.dtype]
    layout = f"NVMMASharedLayout(swizzle_byte_width={swizzle_bytes(box, variant)}, element_bitwidth={8 * element_bytes(variant)}, rank={len(box)})"
    if kind == "im2col":  # without input_rank Triton takes the tensor's dimensions from the box, which has two
        return f"tensordesc_im2col<{element}[{','.join(map(str, box))}],input_rank={rank},{layout}>"
    return f"tensordesc<{element}[{','.join(map(str, box))}],{layout}>"


def swizzle_bytes(box: tuple[int, ...], variant: Variant) -> int:
    """The widest swizzle that divides a row of the box: shared memory is then read without bank conflicts."""
    row = box[-1] * element_bytes(variant)
    return next(width for width in (128, 64, 32, 1) if row % width == 0)


def element_bytes(variant: Variant) -> int:
    return 2 if variant.dtype in ("f16", "bf16") else 4


def load_module(job: Job) -> types.ModuleType:
    """The rendered module. Not imported: a .pyc that an edit within the same second left valid would be run instead."""
    module = types.ModuleType(job.source.stem)
    exec(compile(job.text, str(job.source), "exec"), module.__dict__)
    return module


def compile_options(job: Job, variant: Variant) -> dict:
    """Triton's options, nothing left to be inferred."""
    options = {"num_warps": variant.config.warps, "num_stages": variant.config.stages, "enable_fp_fusion": True}
    if registers := variant.config.constants.get(MAX_REGISTERS):
        options["maxnreg"] = registers
    if job.target.backend == "cuda":
        return options
    hip = dict(job.options)
    options["num_stages"] = hip.pop("stages", options["num_stages"])
    narrow = hip.pop("kpack_k16_gfx942", hip.get("kpack"))
    if job.target.name == "gfx942" and dict(variant.config.tile).get("k", 0) <= 16:
        hip["kpack"] = narrow
    return {**options, **hip}


def describe(kernel, variant: Variant, target: Target, call: Call) -> Artifact:
    """The Artifact, its argument list checked against the binary's own."""
    arguments = call.arguments + SCRATCH
    meta, data = kernel.metadata, kernel.asm[target.binary]
    facts = binary.cubin_facts(data, meta.name) if target.backend == "cuda" else binary.hsaco_facts(kernel.asm["amdgcn"])
    expected = tuple(PARAMETER_BYTES[a.kind] for a in arguments)
    if facts.parameters != expected:
        raise ValueError(f"its parameters are {facts.parameters} bytes, expected {expected}: Triton's launch ABI changed?")
    return Artifact(
        variant.name, variant.kernel.name, variant.dtype, variant.config.constants, meta.name,
        meta.num_warps, meta.num_warps * target.warp_size, meta.shared, meta.num_ctas, meta.global_scratch_size or 0,
        facts.registers, facts.spills, arguments, hashlib.sha256(data).hexdigest(), len(data),
        descriptors=tuple(describe_map(*pair) for pair in zip(call.maps, meta.tensordesc_meta or (), strict=True)),
    )


def describe_map(name: str, meta: dict) -> dict:
    """What a launch must encode: the compiler may have made the box smaller than the tile, and then moves several."""
    return {"name": name, "box": list(meta["block_size"]), "swizzle": meta["swizzle"]}


def write_artifact(folder: Path, variant: Variant, job: Job, artifact: Artifact, data: bytes, seconds: float):
    """Binary first, its .json last: a .json is the word that the binary is there."""
    row = {"inputs": job.digest(variant), "seconds": round(seconds, 2)}
    reason = drop_reason(artifact, job)
    path = folder / f"{variant.name}.{job.target.binary}"
    if reason:
        path.unlink(missing_ok=True)
        row.update(variant=variant.name, dropped=reason)
    else:
        replace_file(path, data)
        row.update(artifact_row(artifact))
    replace_file(folder / f"{variant.name}.json", (json.dumps(row, indent=1, sort_keys=True) + "\n").encode())


def drop_reason(artifact: Artifact, job: Job) -> str | None:
    """Why the compiled variant cannot serve on its target; None when it can."""
    if artifact.shared > job.target.shared_limit:
        return f"shared memory {artifact.shared} > {job.target.shared_limit} ({job.target.name})"
    if artifact.spills > job.spill_limit:
        return f"spills {artifact.spills} bytes a thread > {job.spill_limit}"
    if artifact.scratch:
        return f"needs {artifact.scratch} bytes of global scratch, which the launcher does not give to portable kernels"
    return None


if __name__ == "__main__":
    sys.exit(main())
