"""Arrows point one way: gen may import aotconv, aotconv never gen; each heavy library has one importer."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gen.compile import MODULES

ROOT = Path(__file__).resolve().parent.parent.parent
OFFLINE = ("gen", "triton", "jinja2", "ninja", "networkx", "typer", "rich", "hatchling")


def imported(path: Path) -> set[str]:
    """Top-level names of every import in a file, wherever it stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides its arrow"
            found.add(node.module.split(".")[0])
    return found


def importers(library: str, folder: str) -> set[str]:
    return {path.name for path in (ROOT / folder).rglob("*.py") if "generated" not in path.parts and library in imported(path)}


@pytest.mark.parametrize("library", OFFLINE)
def test_runtime_is_free_of(library):
    assert importers(library, "aotconv") == set()


@pytest.mark.parametrize("library, modules", [("triton", {"compile.py"}), ("jinja2", {"render.py"}), ("networkx", {"graph.py"}),
                                              ("hatchling", {"wheel.py", "wheel_hook.py"})])
def test_one_importer(library, modules):
    assert importers(library, "gen") == modules


def loaded_by(code: str) -> set[str]:
    """Modules in a fresh process after `code`."""
    code += "\nimport sys; print('\\nmodules:', *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("modules:", 1)[1].split())


@pytest.mark.parametrize("command", [["plan"], ["render"], ["list"]])
def test_commands_import_neither_torch_nor_triton(command, tmp_path):
    arguments = command if command == ["list"] else [*command, "--matrix", "gen/matrix.toml", "--out", str(tmp_path)]
    modules = loaded_by(f"from gen.__main__ import main; assert main({arguments!r}) == 0")
    assert not {"torch", "triton", "numpy"} & modules


def test_build_imports_neither_torch_nor_triton():
    assert not {"torch", "triton", "numpy"} & loaded_by("import gen.build, gen.render, gen.wheel, gen.verify, gen.run_ninja, hatchling.build")


def test_compile_edges_depend_on_every_module_they_load():
    modules = loaded_by("import gen.compile")
    ours = {name for name in modules if name.split(".")[0] in ("gen", "aotconv")}
    files = {name.replace(".", "/") + ".py" if (ROOT / (name.replace(".", "/") + ".py")).exists() else name + "/__init__.py" for name in ours}
    assert files == set(MODULES)


def test_admit_imports_no_build_tool():
    modules = loaded_by("import gen.__main__\ntry:\n import gen.admit\nexcept ImportError as e:\n assert e.name == 'torch', e")
    assert not {"triton", "jinja2", "networkx", "typer", "rich", "ninja"} & modules
