"""Matrix -> sources: every kernel, the dispatch module and the manifest. The only module that imports jinja2."""

from pathlib import Path

import jinja2

from gen.coverage_page import coverage
from gen.files import write_if_changed
from gen.matrix import Entry, Matrix
from gen.rules import variants_for
from gen.structure import aligned, constraints
from gen.toolchain import Toolchain
from gen.variants import Kernel

TEMPLATES = Path(__file__).parent.parent / "templates"
DISPATCH_FORMAT = 1


def environment() -> jinja2.Environment:
    """One environment for every template: undefined names are errors, tags leave no blank lines."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )


def render_kernel(env: jinja2.Environment, kernel: Kernel, entry: Entry) -> str:
    """The source of one kernel."""
    template = f"{entry.template}.py.j2"
    return env.get_template(template).render(
        template=template, name=kernel.name, dims=list(kernel.dims), pins=kernel.pins, index=kernel.index,
        vector=entry.vector, aligned=aligned(entry), gather=entry.maps == "im2col", swapped=entry.swapped,
        mirrored=kernel.op == "bwd_input",
    )


def render_dispatch(env: jinja2.Environment, matrix: Matrix, toolchain: Toolchain) -> str:
    """The dispatch module: versions, targets, and what each kernel asks of a problem."""
    kernels = [(kernel, constraints(kernel, entry)) for kernel, entry in sorted(matrix.kernels.items())]
    return env.get_template("dispatch.py.j2").render(
        format=DISPATCH_FORMAT, matrix_digest=matrix.digest, targets=[t.name for t in matrix.targets],
        toolchain=toolchain, kernels=kernels,
    )


def render_manifest(matrix: Matrix) -> str:
    """What is compiled, a line for each target and variant; what ships is decided by this and nothing else."""
    rows = [f"{target.name}\t{v.kernel.name}\t{v.dtype}\t{v.config.name}"
            for target in matrix.targets for v in variants_for(matrix, target)]
    return "target\tkernel\tdtype\tconfig\n" + "\n".join(rows) + "\n"


def render_all(matrix: Matrix, toolchain: Toolchain, out: Path) -> list[Path]:
    """Write every rendered file under `out`; returns those that changed. Stale kernels go once all is written."""
    env = environment()
    sources = {out / "kernels" / f"{kernel.name}.py": render_kernel(env, kernel, entry)
               for kernel, entry in matrix.kernels.items()}
    others = {
        out / "__init__.py": '"""Written by `python -m gen render` and `build`; never by hand."""\n',
        out / "kernels" / "__init__.py": "",
        out / "dispatch.py": render_dispatch(env, matrix, toolchain),
        out / "manifest.tsv": render_manifest(matrix),
        out / "coverage.md": env.get_template("coverage.md.j2").render(coverage(matrix)),
    }
    changed = [path for path, text in {**sources, **others}.items() if write_if_changed(path, text)]
    for path in (out / "kernels").glob("*.py"):
        if path not in sources and path.name != "__init__.py":
            path.unlink()
            changed.append(path)
    return changed
