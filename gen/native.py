"""How the native launcher is compiled: the command as data, torch's headers, and the glibc that the result needs."""

import importlib.util
import re
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "aotconv" / "csrc" / "launcher.cpp"
TORCH_TARGET = "0x020a000000000000"  # 2.10: what is newer in the stable ABI is not even declared

# No path, time or build number of this machine may reach the bytes: the launcher's digest stands for its sources.
REPRODUCIBLE = ("-Wl,--build-id=none", "-frandom-seed=aotconv", "-s")

# The library uses nothing of the C++ run time; should that change, it must come in statically and stay hidden.
SELF_CONTAINED = (
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-gnu-unique",
    "-static-libstdc++",
    "-static-libgcc",
    "-Wl,--exclude-libs,ALL",
    "-Wl,-z,defs",
    "-Wl,-z,relro,-z,now",
)


def torch_include() -> Path:
    """The folder of torch's headers, found without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise RuntimeError("torch is not installed; its headers are needed for the native launcher: pip install torch")
    include = Path(spec.origin).parent / "include"
    shim = include / "torch" / "csrc" / "stable" / "c" / "shim.h"
    if not shim.is_file():
        raise RuntimeError(
            f"found torch without {shim.relative_to(include)}; expected 2.10 or newer: pip install 'torch>=2.10'"
        )
    return include


def sources() -> list[Path]:
    """Every file the launcher is compiled from, for the build graph."""
    return sorted(path for path in SOURCE.parent.iterdir() if path.suffix in (".cpp", ".h"))


def compile_command(out: Path, torch_include: Path) -> list[str]:
    """The command that compiles the launcher to `out`."""
    return [
        "g++",
        "-O2",
        "-std=c++20",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        *SELF_CONTAINED,
        *REPRODUCIBLE,
        f"-ffile-prefix-map={SOURCE.parent}=csrc",
        f"-ffile-prefix-map={torch_include}=torch",
        f"-DTORCH_TARGET_VERSION={TORCH_TARGET}",
        "-DNDEBUG",
        "-isystem",
        str(torch_include),
        str(SOURCE),
        "-o",
        str(out),
    ]


# ELF constants, from the System V ABI and the GNU symbol versioning extension.
SHT_GNU_VERNEED = 0x6FFFFFFE
SECTION = struct.Struct("<IIQQQQIIQQ")
NEED = struct.Struct("<HHIII")
NEED_VERSION = struct.Struct("<IHHII")


def glibc_floor(so: Path) -> tuple[int, int]:
    """The newest glibc version that a library asks for, as (major, minor): the wheel's manylinux tag."""
    data = so.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise RuntimeError(f"{so} begins with {data[:6]!r}; expected a 64-bit little-endian ELF library")
    versions = [match for name in needed_versions(data) if (match := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name))]
    if not versions:
        raise RuntimeError(f"{so} asks for no glibc version; expected a dynamically linked library")
    return max((int(match[1]), int(match[2])) for match in versions)


def needed_versions(data: bytes) -> list[str]:
    """The names in an ELF file's version needs (`.gnu.version_r`)."""
    sections = section_table(data)
    return [
        name
        for section in sections
        if section[1] == SHT_GNU_VERNEED
        for name in version_names(data, section[4], section[7], sections[section[6]][4])
    ]


def section_table(data: bytes) -> list[tuple[int, ...]]:
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    return [SECTION.unpack_from(data, start + i * size) for i in range(count)]


def version_names(data: bytes, at: int, needs: int, strings: int) -> list[str]:
    names = []
    for _ in range(needs):
        _, count, _, first, following = NEED.unpack_from(data, at)
        entry = at + first
        for _ in range(count):
            _, _, _, name, step = NEED_VERSION.unpack_from(data, entry)
            names.append(data[strings + name : data.index(b"\0", strings + name)].decode())
            entry += step
        at += following
    return names
