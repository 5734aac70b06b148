"""Artifacts of one target -> its pack.

    python -m gen.pack_files --out DIR --target T --inputs FILE

FILE lists the artifacts' .json files, in the order of the pack. Writes DIR/packs/T.pack, and beside it T.json with the
sizes and the SHA-256 of the pack: what the build reports, and how it knows a pack that was damaged on disk.
"""

import argparse
import hashlib
import json
import shlex
import sys
import zlib
from dataclasses import fields
from pathlib import Path

from aotconv.pack import Artifact, artifact_from, write_pack
from aotconv.target import Target
from gen.files import write_if_changed

FORMAT = 1
FACTS = {field.name for field in fields(Artifact)}


class ArtifactError(RuntimeError):
    """An artifact that is not what its .json says."""


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gen.pack_files", description="Pack one target's artifacts.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", type=Target.parse, required=True)
    parser.add_argument("--inputs", type=Path, required=True)
    args = parser.parse_args(arguments)
    try:
        pack(args.out, args.target, [Path(name) for name in shlex.split(args.inputs.read_text())])
    except ArtifactError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def pack(out: Path, target: Target, paths: list[Path]):
    """Write the pack of `target` and its sizes, each only when it changed."""
    rows = [read_row(path) for path in paths]
    built = [(path, row) for path, row in zip(paths, rows) if "dropped" not in row]
    artifacts = [read_artifact(path, row, target) for path, row in built]
    dropped = {row["variant"]: row["dropped"] for row in rows if "dropped" in row}
    data = write_pack(out, pack_header(out, target, dropped), artifacts)
    write_if_changed(out / "packs" / f"{target.name}.pack", data)
    write_if_changed(out / "packs" / f"{target.name}.json", json.dumps(sizes(data, len(artifacts), len(dropped))) + "\n")


def read_row(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: {error}; run python -m gen build") from None


def read_artifact(path: Path, row: dict, target: Target) -> tuple[Artifact, bytes]:
    """An artifact and its bytes, which must be those that its .json speaks of."""
    binary = path.with_suffix(f".{target.binary}")
    data = binary.read_bytes() if binary.exists() else b""
    if hashlib.sha256(data).hexdigest() != row["sha256"]:
        raise ArtifactError(f"{binary} is not the binary that its .json speaks of; delete it and run python -m gen build")
    return artifact_from({name: value for name, value in row.items() if name in FACTS}), data


def pack_header(out: Path, target: Target, dropped: dict[str, str]) -> dict:
    """What a pack says of itself, besides its artifacts. Nothing of the matrix: equal artifacts give equal packs."""
    toolchain = json.loads((out / "toolchain" / "triton.json").read_text())
    return {
        "format": FORMAT, "target": target.name, "triton": toolchain["triton"], "ptxas": toolchain["ptxas"],
        "toolchain": toolchain["digest"], "minimum_driver": target.minimum_driver, "dropped": dropped,
    }


def sizes(data: bytes, artifacts: int, dropped: int) -> dict:
    return {"artifacts": artifacts, "dropped": dropped, "bytes": len(data), "compressed": len(zlib.compress(data)),
            "sha256": hashlib.sha256(data).hexdigest()}


if __name__ == "__main__":
    sys.exit(main())
