"""The toolchain's identity: what, besides its inputs, decides the bytes of an artifact. Never imports Triton.

The identity is a digest over the hashes that Triton's wheel recorded of its own files (compiler, ptxas, LLVM and the
Python sources among them), and the environment that compile workers run in.
"""

import hashlib
import json
import re
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

# Everything else that begins so is cleared before Triton is imported.
CLEARED = ("TRITON_", "DISABLE_", "ENABLE_", "LLVM_", "MLIR_", "AMDGCN_", "NVPTX_", "PTXAS_", "USE_IR_LOC", "MLIR")
ENVIRONMENT = {
    "TRITON_DISABLE_LINE_INFO": "1",   # line info holds the folder's name: bytes would differ from folder to folder
    "TRITON_ALWAYS_COMPILE": "1",      # a cached artifact is returned without a check of its bytes
    "PYTHONHASHSEED": "0",
}


class ToolchainError(RuntimeError):
    """No usable toolchain: says what is missing and how to install it."""


@dataclass(frozen=True)
class Toolchain:
    """Versions for people, and `digest` for the build."""

    triton: str
    ptxas: str
    digest: str

    def text(self) -> str:
        """The file that compile edges depend on."""
        return json.dumps({**asdict(self), "environment": ENVIRONMENT}, indent=1, sort_keys=True) + "\n"


def find_toolchain() -> Toolchain:
    """The installed Triton's identity."""
    try:
        triton = distribution("triton")
    except PackageNotFoundError:
        raise ToolchainError("Triton is not installed; install the build group: pip install --group build") from None
    record = triton.read_text("RECORD") or ""
    lines = sorted(line for line in record.splitlines() if line.startswith("triton/") and ",sha256=" in line
                   and not line.split(",")[0].endswith(".pyc"))
    if not lines:
        raise ToolchainError(f"Triton {triton.version} has no file hashes in its RECORD, so its identity is unknown; "
                             "reinstall it from a wheel")
    content = "\n".join([*lines, json.dumps(ENVIRONMENT, sort_keys=True)])
    return Toolchain(triton.version, ptxas_version(triton), hashlib.sha256(content.encode()).hexdigest())


def ptxas_version(triton) -> str:
    """Version of the ptxas in Triton's wheel, such as 12.9.86."""
    ptxas = Path(triton.locate_file("triton/backends/nvidia/bin/ptxas"))
    try:
        shown = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolchainError(f"{ptxas} does not run ({error}); reinstall Triton") from None
    return re.search(r"V([\d.]+)", shown)[1]
