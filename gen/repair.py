"""The output folder before ninja sees it: nothing damaged is trusted, nothing stale stays, no time lies ahead.

Ninja asks only for times and names. A build that was killed, a disk that flipped a bit or a clock that was set back
leave files that look finished; whatever does not hold is removed by name, and ninja makes it again.
"""

import hashlib
import json
import os
import time
from pathlib import Path

BINARIES = (".cubin", ".hsaco")
SLACK_SECONDS = 1.0      # of network file systems


def repair(out: Path, wanted: set[Path], inputs: list[Path], say=print):
    """`wanted`: every file that an edge makes. `inputs`: every file that an edge reads."""
    remove_temporaries(out)
    remove_stale(out, wanted)
    distrust_artifacts(out)
    distrust_packs(out)
    settle_times(out, inputs, say)


def remove_temporaries(out: Path):
    """What gen/files.py was writing when it was killed."""
    for path in [*out.glob(".*.tmp"), *out.glob("*/.*.tmp"), *out.glob("obj/*/.*.tmp")]:
        path.unlink(missing_ok=True)


def remove_stale(out: Path, wanted: set[Path]):
    """Artifacts, packs and tables of what is no longer in the matrix; a binary goes with its .json."""
    for path in [*out.glob("obj/*/*"), *out.glob("packs/*"), *out.glob("tables/*.json")]:
        if (path.with_suffix(".json") if path.suffix in BINARIES else path) not in wanted:
            path.unlink()
    for folder in out.glob("obj/*"):
        if not any(folder.iterdir()):
            folder.rmdir()


def distrust_artifacts(out: Path):
    """A .json stays only beside the very binary that it speaks of, a binary only beside its .json."""
    for folder in out.glob("obj/*"):
        files = {path.name for path in folder.iterdir()}
        sound = {name.removesuffix(".json") for name in files if name.endswith(".json") and is_sound(folder / name, files)}
        for name in files:
            if os.path.splitext(name)[0] not in sound:
                (folder / name).unlink()


def is_sound(path: Path, files: set[str]) -> bool:
    try:
        row = json.loads(path.read_bytes())
        if "dropped" in row:
            return not any(path.stem + suffix in files for suffix in BINARIES)
        binary = next(path.with_suffix(suffix) for suffix in BINARIES if path.stem + suffix in files)
        return hashlib.sha256(binary.read_bytes()).hexdigest() == row["sha256"]
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return False


def distrust_packs(out: Path):
    """A pack stays only with the SHA-256 that was written beside it."""
    for path in out.glob("packs/*.pack"):
        sizes = path.with_suffix(".json")
        try:
            sound = json.loads(sizes.read_bytes())["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            path.unlink()
            sizes.unlink(missing_ok=True)


def settle_times(out: Path, inputs: list[Path], say):
    """Files of the build get a time that has been; sources keep theirs, and one of them is named."""
    now = time.time()
    ahead = [path for path in inputs if path.exists() and path.stat().st_mtime > now + SLACK_SECONDS]
    for path in ahead:
        if path.is_relative_to(out):
            os.utime(path)
    if foreign := [path for path in ahead if not path.is_relative_to(out)]:
        say(f"warning: {foreign[0]} was modified in the future ({len(foreign)} such); what depends on it is checked at "
            "each build until then: touch it, or set the clock")
    if newest_in_log(out / ".ninja_log") > (now + SLACK_SECONDS) * 1e9:
        # The clock was set back: by these times ninja would take the next edit for an old one.
        (out / ".ninja_log").unlink()


def newest_in_log(path: Path) -> int:
    """The latest time of an output in ninja's log (start, end, nanoseconds, output, hash); 0 without one."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    times = [words[2] for words in (line.split("\t") for line in lines) if len(words) == 5]
    return max((int(text) for text in times if text.isdigit()), default=0)
