"""How many edges may run at once: cores for all of them, memory for the compilers, MAX_JOBS above both."""

import os
from dataclasses import dataclass
from pathlib import Path

COMPILER_BYTES = 2 * 2**30   # assumed for one compile edge; the largest tiles were seen to take less
SPARE = 0.2                  # of the memory stays free
UNLIMITED = 2**60            # what cgroup v1 shows where no limit was set is larger still


class JobsError(ValueError):
    """A MAX_JOBS that is no number of jobs."""


@dataclass(frozen=True)
class Jobs:
    """Edges at once, and compile edges among them."""

    all: int
    compile: int

    def text(self) -> str:
        """toolchain/jobs.ninja: this machine's number, kept out of build.ninja."""
        return f"compile_jobs = {self.compile}\n"


def find_jobs(environment=os.environ, root: Path = Path("/")) -> Jobs:
    """This machine's numbers, in this process's control group."""
    cores = usable_cores(root)
    if text := environment.get("MAX_JOBS"):
        if not text.isdigit() or int(text) < 1:
            raise JobsError(f"MAX_JOBS={text!r}, expected a number from 1 up; correct or unset it")
        cores = int(text)
    return Jobs(cores, max(1, min(cores, int(free_memory(root) * (1 - SPARE) / COMPILER_BYTES))))


def usable_cores(root: Path) -> int:
    """Cores this process may run on, no more than its control groups' quotas."""
    quotas = [int(quota) / int(period) for quota, period in cpu_quotas(root) if quota.isdigit() and int(period)]
    return max(1, int(min([len(os.sched_getaffinity(0)), *quotas])))


def cpu_quotas(root: Path):
    for folder in groups(root, ""):
        if words := read(folder / "cpu.max").split():
            yield tuple(words)
    for folder in groups(root, "cpu"):
        yield read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us") or "0"


def free_memory(root: Path) -> int:
    """Bytes that may still be taken: of the machine, and of each control group above this process."""
    lines = dict(line.split(":", 1) for line in read(root / "proc/meminfo").splitlines())
    free = [int(lines["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in lines else []
    pairs = [(read(f / "memory.max"), read(f / "memory.current")) for f in groups(root, "")]
    pairs += [(read(f / "memory.limit_in_bytes"), read(f / "memory.usage_in_bytes")) for f in groups(root, "memory")]
    free += [int(limit) - int(used) for limit, used in pairs if limit.isdigit() and used.isdigit() and int(limit) < UNLIMITED]
    return max(0, min(free, default=COMPILER_BYTES))


def groups(root: Path, controller: str):
    """Folders of this process's control group and those above it; version 2 has no controller's name."""
    for line in read(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            base = root / "sys/fs/cgroup" / controller
            here = base / path.strip("/")
            yield from (folder for folder in (here, *here.parents) if folder.is_relative_to(base))


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
