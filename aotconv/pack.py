"""A pack: every artifact of one target in one file. Standard library only.

Layout: the 8-byte magic, the length of the index (8 bytes, little endian), the SHA-256 of the index (32 bytes), the
index (JSON, UTF-8), then the binaries, each at a multiple of 64 bytes. Offsets count from the first binary.
"""

import hashlib
import json
import mmap
from dataclasses import asdict, dataclass
from pathlib import Path

MAGIC = b"AOTPACK1"
HEAD = len(MAGIC) + 8 + 32
ALIGN = 64
LAUNCH_ABI = 1  # of the argument lists below; the launcher refuses another


class PackError(RuntimeError):
    """A pack that may not be used: says what was found, what was expected and what to do."""


@dataclass(frozen=True)
class Argument:
    """One kernel parameter, in the binary's order.

    kind: `ptr`, `i32`, `i64`, `scratch` (hidden trailing pointer), `tiled` or `im2col` (tensor map).
    divisible: the value (for `ptr` the address in bytes) must be a multiple of this; the compiler was promised so.
    """

    name: str
    kind: str
    divisible: int = 1


@dataclass(frozen=True)
class Artifact:
    """One variant compiled for one target: all that a launch needs, and where its bytes are."""

    variant: str
    kernel: str
    dtype: str                       # f16, bf16, f32, tf32
    tile: dict                       # constexpr name -> value, as compiled
    symbol: str
    warps: int                       # after compilation
    threads: int
    shared: int                      # bytes of dynamic shared memory
    cluster: int
    scratch: int                     # bytes of global scratch per program
    registers: int
    spills: int                      # bytes of local memory per thread
    arguments: tuple[Argument, ...]
    sha256: str
    size: int = 0
    offset: int = -1
    descriptors: tuple = ()          # tensor maps' boxes and swizzles, as the compiler reports them


def artifact_from(row: dict) -> Artifact:
    """An Artifact from its JSON form."""
    row = dict(row)
    row["arguments"] = tuple(Argument(*a) for a in row["arguments"])
    row["descriptors"] = tuple(row.get("descriptors", ()))
    return Artifact(**row)


def artifact_row(artifact: Artifact) -> dict:
    """The JSON form of an Artifact."""
    row = asdict(artifact)
    row["arguments"] = [[a.name, a.kind, a.divisible] for a in artifact.arguments]
    return row


def write_pack(path: Path, header: dict, artifacts: list[tuple[Artifact, bytes]]) -> bytes:
    """The bytes of a pack for `artifacts` in the given order; identical binaries are stored once."""
    blob, places, rows = bytearray(), {}, []
    for artifact, data in artifacts:
        if artifact.sha256 not in places:
            blob.extend(b"\0" * (-len(blob) % ALIGN))
            places[artifact.sha256] = len(blob)
            blob.extend(data)
        row = artifact_row(artifact)
        row.update(offset=places[artifact.sha256], size=len(data))
        rows.append(row)
    index = json.dumps({**header, "launch_abi": LAUNCH_ABI, "artifacts": rows}, separators=(",", ":"), sort_keys=True)
    index = index.encode()
    index += b" " * (-(HEAD + len(index)) % ALIGN)
    head = MAGIC + len(index).to_bytes(8, "little") + hashlib.sha256(index).digest()
    return head + index + bytes(blob)


class Pack:
    """A mapped pack. Opening reads and checks the index alone; a binary is checked when it is asked for."""

    def __init__(self, path):
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise PackError(f"{self.path} cannot be read ({error}); reinstall the wheel") from None
        self.header = self._read_index()
        try:
            self.artifacts = tuple(artifact_from(row) for row in self.header["artifacts"])
            self.target = self.header["target"]
        except (KeyError, TypeError) as error:
            raise PackError(f"{self.path}: an artifact is not described as expected ({error!r}); "
                            "install packs and runtime from one wheel") from None

    def _read_index(self) -> dict:
        magic = self.map[: len(MAGIC)]
        if magic != MAGIC:
            raise PackError(f"{self.path} begins with {magic!r}, expected {MAGIC!r}: another format; reinstall the wheel")
        size = int.from_bytes(self.map[len(MAGIC) : len(MAGIC) + 8], "little")
        index = self.map[HEAD : HEAD + size]
        if len(index) != size or hashlib.sha256(index).digest() != self.map[len(MAGIC) + 8 : HEAD]:
            raise PackError(f"{self.path}: its index does not match its own SHA-256; reinstall the wheel")
        self.start = HEAD + size
        header = json.loads(index)
        found = header.get("launch_abi")
        if found != LAUNCH_ABI:
            raise PackError(
                f"{self.path} was built for launch ABI {found}, this aotconv speaks {LAUNCH_ABI}; "
                "install packs and runtime from one wheel"
            )
        return header

    def binary(self, artifact: Artifact) -> memoryview:
        """The artifact's bytes, checked against their SHA-256."""
        start = self.start + artifact.offset
        data = memoryview(self.map)[start : start + artifact.size]
        if len(data) != artifact.size:
            raise PackError(f"{self.path} is cut short: {artifact.variant} ends past its end; reinstall the wheel")
        if hashlib.sha256(data).hexdigest() != artifact.sha256:
            raise PackError(f"{self.path}: {artifact.variant} does not match its SHA-256; reinstall the wheel")
        return data

    def faults(self) -> list[str]:
        """What is wrong with the binaries of this pack, a sentence each."""
        found = []
        for artifact in self.artifacts:
            try:
                self.binary(artifact)
            except PackError as error:
                found.append(str(error))
        return found
