"""Writing files: only what changed, to a temporary name, then renamed."""

import os
from pathlib import Path


def write_if_changed(path: Path, data: str | bytes) -> bool:
    """Write `data` unless the file holds it already; returns whether it was written.

    A reader, or a build killed at any moment, sees the old file or the new one, never a part.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        if path.read_bytes() == data:
            return False
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
    return True


def replace_file(path: Path, data: bytes):
    """Write to a name of this process's own beside `path`, then rename over it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
