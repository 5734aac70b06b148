"""A copy of the repository in a folder of its own, with a small matrix: what the build's tests run in.

A build is a process of the copy (`python -m gen ...`). `stub` builds with tests/build/stub_compiler.py in the place of
gen.compile: the same worker, whose compiler is a hash. It notes each variant that it compiles.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("aotconv", "gen", "templates", "rules.ninja", "pyproject.toml", "tests/build")

HEAD = """\
format = 1
[build]
targets = ["sm_90a"]
[budgets]
artifacts = 20
megabytes = 1.0
cpu_seconds = 100
spill_bytes = 256
[options]
[seed]
configs = [[64, 64, 32, 2, 4]]
small = []
min_block = 16
accumulators_per_warp = 256
classes = [[1000, 64, 64]]
"""
FLAT = """\
[[kernel]]
template = "fwd_flat"
op = "fwd"
layout = "flat"
ranks = [1]
pins = [0]
ship.f16 = ["m16n16k16w1s1"]
ship.f32 = ["m16n16k16w1s1"]
"""
ANY = """\
[[kernel]]
template = "fwd_any"
op = "fwd"
layout = "any"
ranks = [1]
pins = [0]
ship.f32 = ["m16n16k16w1s1"]
"""
SMALL = HEAD + FLAT + ANY
BUILD_WITH_STUB = """\
import sys
from gen.build import build
from gen.graph import Place
from gen.matrix import MatrixError, load_matrix
from gen.plan import make_plan
from gen.run_ninja import BuildFailed
try:
    build(make_plan(load_matrix()), Place("generated", compiler=sys.argv[1]))
except BuildFailed as error:
    sys.exit(str(error))
"""


class Sandbox:
    """One copy, in `root`. Every command is run with `environment` on top of this process's own."""

    def __init__(self, root: Path, matrix: str = SMALL, **environment):
        self.root, self.out = root, root / "generated"
        self.environment = {**os.environ, "MAX_JOBS": "2", **environment}
        skip = shutil.ignore_patterns("__pycache__", "records")
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / part, root / part, **({"symlinks": True, "ignore": skip} if copy is shutil.copytree else {}))
        (root / "README.md").write_text("A copy for a test.\n")
        self.out.mkdir()
        self.set_matrix(matrix)

    def copy(self, root: Path) -> "Sandbox":
        """This folder as it stands, times included, somewhere else."""
        shutil.copytree(self.root, root, symlinks=True)
        other = object.__new__(Sandbox)
        other.root, other.out, other.environment = root, root / "generated", self.environment
        return other

    def set_matrix(self, text: str):
        (self.root / "gen/matrix.toml").write_text(text)

    def edit(self, name: str, old: str, new: str):
        """Replace text of a file, which must hold it."""
        text = (self.root / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        (self.root / name).write_text(text.replace(old, new))

    def start(self, *command: str, **more) -> subprocess.Popen:
        """Control-C is heard even where this suite runs in the background of a shell, which has its jobs ignore it."""
        more.setdefault("preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        return subprocess.Popen([sys.executable, *command], cwd=self.root, env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)

    def run(self, *command: str, ok: bool = True) -> str:
        """Output of a Python command, which must succeed (or fail)."""
        process = self.start(*command)
        output = process.communicate()[0]
        assert (process.returncode == 0) == ok, output
        return output

    def gen(self, *arguments: str, ok: bool = True) -> str:
        return self.run("-m", "gen", *arguments, ok=ok)

    def stub(self, compiler: str = "tests.build.stub_compiler", ok: bool = True) -> str:
        return self.run("-c", BUILD_WITH_STUB, compiler, ok=ok)

    def compiled(self) -> list[str]:
        """Variants that the stub compiled since the last call, sorted."""
        log = self.root / "compiled.log"
        names = log.read_text().split() if log.exists() else []
        log.write_text("")
        return sorted(names)

    def digests(self) -> dict[str, str]:
        """SHA-256 of every artifact, pack, table and the launcher."""
        files = [p for pattern in ("obj/*/*.cubin", "obj/*/*.hsaco", "packs/*.pack", "tables/*", "launcher.so")
                 for p in self.out.glob(pattern)]
        return {p.relative_to(self.out).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)}
