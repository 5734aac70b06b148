"""The command line: each command loads the plan, calls its module and shows the outcome."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from aotconv.pack import PackError
from gen.graph import ROOT, Place, edges, spell
from gen.jobs import JobsError
from gen.matrix import DEFAULT, MatrixError, load_matrix
from gen.only import Only, OnlyError, parse_only
from gen.pack_files import ArtifactError
from gen.plan import Plan, make_plan
from gen.problems import ProblemError
from gen.run_ninja import BuildFailed
from gen.table import RecordError
from gen.timings import TimingError
from gen.toolchain import ToolchainError
from gen.wheel import WheelError

OUT = ROOT / "generated"
EXPECTED = (MatrixError, OnlyError, JobsError, ToolchainError, RecordError, TimingError, ProblemError, ArtifactError, PackError, BuildFailed, WheelError)
INTERRUPTED, TERMINATED = 130, 143  # typer's status after Control-C; a shell's after SIGTERM

MatrixOption = Annotated[Path, typer.Option("--matrix", help="The matrix to build.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where to build; another matrix needs another folder.")]
OnlyOption = Annotated[str, typer.Option("--only", metavar="FIELD=VALUE,...", help="Select by target, op, rank, dtype, "
                                         "layout or kernel; values may be separated by |.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Ahead-of-time builds of GPU convolutions.")


def main(arguments: list[str]) -> int:
    """Run one command; an expected error is one line."""
    sys.stdout.reconfigure(line_buffering=True)  # a log that is read while the build runs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # ninja is stopped as after Control-C
    try:
        status = app(args=arguments, prog_name="python -m gen", standalone_mode=False) or 0
        if status == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        return status
    except EXPECTED as error:
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:
        if not hasattr(error, "show"):
            raise
        error.show()  # a usage error of the command line itself
        return 2
    return 1


def load(matrix: Path, out: Path, only: str) -> tuple[Plan, Place, Only]:
    """What every command begins with."""
    if matrix.resolve() != DEFAULT.resolve() and out.resolve() == OUT.resolve():
        raise MatrixError(f"{matrix} is not the default matrix, and --out is the default folder; give it its own --out")
    plan = make_plan(load_matrix(matrix))
    return plan, Place(spell(out)), parse_only(only, plan)


@app.command()
def plan(matrix: MatrixOption = DEFAULT, out: OutOption = OUT, only: OnlyOption = ""):
    """What would be built: counts, time, size, and what was rejected and why."""
    from gen.show import show_plan

    show_plan(*load(matrix, out, only))


@app.command()
def render(matrix: MatrixOption = DEFAULT, out: OutOption = OUT, only: OnlyOption = ""):
    """Matrix -> sources, manifest and build.ninja; nothing is compiled. With --only: the selected kernels' sources."""
    from gen import build as steps
    from gen.lock import locked

    loaded, place, chosen = load(matrix, out, only)
    with locked(place.path):
        changed = steps.render_some(loaded, place, chosen) if chosen.fields else steps.render(loaded, place, edges(loaded, place))
    for path in changed:
        print(f"wrote {spell(path)}")
    print(f"{len(changed)} files changed")


@app.command()
def build(matrix: MatrixOption = DEFAULT, out: OutOption = OUT, only: OnlyOption = ""):
    """Render, then ninja: artifacts, packs, tables, launcher."""
    from gen import build as steps

    steps.build(*load(matrix, out, only))


@app.command()
def table(matrix: MatrixOption = DEFAULT, out: OutOption = OUT, only: OnlyOption = ""):
    """Records -> tables, and packs again from what was built; nothing is compiled."""
    from gen import build as steps

    steps.repack(*load(matrix, out, only))


@app.command()
def wheel(
    matrix: MatrixOption = DEFAULT, out: OutOption = OUT, only: OnlyOption = "",
    dist: Annotated[Path, typer.Option("--dist", help="Where the wheel goes.")] = ROOT / "dist",
    require_admitted: Annotated[list[str], typer.Option("--require-admitted", metavar="TARGET",
                                                        help="Fail unless all artifacts of TARGET are admitted.")] = [],
):
    """Build, then a wheel."""
    from gen.wheel import make_wheel

    print(make_wheel(*load(matrix, out, only), dist, require_admitted))


@app.command("list")
def list_(matrix: MatrixOption = DEFAULT, out: OutOption = OUT, only: OnlyOption = ""):
    """Every variant that is built, with its target."""
    loaded, _, chosen = load(matrix, out, only)
    for target in loaded.targets:
        for variant in loaded.variants_for(target):
            if chosen.picks(target, variant):
                print(f"{target.name}\t{variant.name}")


@app.command()
def why(name: str, matrix: MatrixOption = DEFAULT, out: OutOption = OUT):
    """What became of a variant, or of every candidate of a kernel; what serves a problem (a row of a problem file, or a key)."""
    from gen.why import explain
    from gen.why_problem import explain_problem, is_problem

    loaded, place, _ = load(matrix, out, "")
    lines = explain_problem(name, loaded.targets, place) if is_problem(name) else explain(name, loaded, place)
    print("\n".join(lines))


@app.command()
def verify(wheel: Path):
    """Whether a wheel holds what it should: files, hashes, packs, tables, launcher."""
    from gen.verify import faults

    found = faults(wheel)
    print("\n".join(found) or f"{wheel}: sound")
    raise typer.Exit(int(bool(found)))
