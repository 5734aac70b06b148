"""One build at a time in one output folder."""

import fcntl
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(out: Path, say=print):
    """Hold OUT/.lock; yields its descriptor.

    Ninja and the compilers inherit it: when a build is killed and they live on, the next one waits for them too.
    """
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another build works in {out}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
