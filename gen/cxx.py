"""The native launcher: its compilation as a build edge, and the identity of what compiles it. Never imports torch.

    python -m gen.cxx --out DIR        writes DIR/launcher.so
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from gen.files import write_if_changed
from gen.native import compile_command, torch_include
from gen.toolchain import ToolchainError

# The folders of torch's headers that the launcher may include; their content is part of the compiler's identity.
HEADERS = ("torch/csrc/stable", "torch/headeronly", "torch/csrc/inductor/aoti_torch/c")


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gen.cxx", description="Compile the native launcher.")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "launcher.so"
        done = subprocess.run(compile_command(built, torch_include()))
        if done.returncode:
            print(f"the launcher does not compile: exit status {done.returncode}", file=sys.stderr)
            return 1
        write_if_changed(args.out / "launcher.so", built.read_bytes())
    return 0


def cxx_identity() -> str:
    """The launcher's toolchain file: compiler, flags and headers. No path of this machine enters it."""
    try:
        include = torch_include()
    except RuntimeError as error:
        raise ToolchainError(str(error)) from None
    command = compile_command(Path("launcher.so"), Path("torch"))
    flags = [word for word in command[1:] if not word.startswith(("/", "-ffile-prefix-map="))]
    identity = {"compiler": compiler_version(command[0]), "flags": flags, "headers": headers_digest(include)}
    return json.dumps(identity, indent=1, sort_keys=True) + "\n"


def compiler_version(compiler: str) -> str:
    try:
        shown = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolchainError(f"{compiler} does not run ({error}); the native launcher needs it: install GCC") from None
    return shown.splitlines()[0]


def headers_digest(include: Path) -> str:
    """SHA-256 over the names and bytes of the headers that may be used."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in HEADERS for path in (include / folder).rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(include).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
