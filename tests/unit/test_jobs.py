"""How many compilers may run at once, on machines that are only files in a folder."""

import os

import pytest

from gen.jobs import Jobs, JobsError, find_jobs

GIB = 2**30
CORES = len(os.sched_getaffinity(0))


def machine(root, **files):
    """A root folder with these files; `__` in a name is a folder, `.` stays."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(available: int) -> str:
    return f"MemTotal:       999999999 kB\nMemAvailable:   {available // 1024} kB\n"


def test_plenty(tmp_path):
    assert find_jobs({}, machine(tmp_path, proc__meminfo=meminfo(1000 * GIB))) == Jobs(CORES, CORES)


def test_little_memory_bounds_the_compilers_alone(tmp_path):
    root = machine(tmp_path, proc__meminfo=meminfo(8 * GIB))
    assert find_jobs({"MAX_JOBS": "96"}, root) == Jobs(96, 3)   # 80 % of 8 GiB, 2 GiB each


def test_one_always_runs(tmp_path):
    assert find_jobs({"MAX_JOBS": "4"}, machine(tmp_path, proc__meminfo=meminfo(GIB))).compile == 1


def test_group_of_version_2(tmp_path):
    root = machine(tmp_path, proc__meminfo=meminfo(500 * GIB), proc__self__cgroup="0::/ci/job\n",
                   sys__fs__cgroup__ci__memoryDOTmax=str(12 * GIB), sys__fs__cgroup__ci__memoryDOTcurrent=str(4 * GIB),
                   sys__fs__cgroup__ci__job__memoryDOTmax="max", sys__fs__cgroup__ci__job__memoryDOTcurrent=str(4 * GIB))
    assert find_jobs({"MAX_JOBS": "50"}, root) == Jobs(50, 3)


def test_group_of_version_1(tmp_path):
    root = machine(tmp_path, proc__meminfo=meminfo(500 * GIB), proc__self__cgroup="4:memory:/ci\n5:cpu,cpuacct:/\n",
                   sys__fs__cgroup__memory__ci__memoryDOTlimit_in_bytes=str(10 * GIB),
                   sys__fs__cgroup__memory__ci__memoryDOTusage_in_bytes=str(2 * GIB),
                   sys__fs__cgroup__memory__memoryDOTlimit_in_bytes="9223372036854771712",
                   sys__fs__cgroup__memory__memoryDOTusage_in_bytes=str(2 * GIB))
    assert find_jobs({"MAX_JOBS": "50"}, root) == Jobs(50, 3)


def test_quota_of_cores(tmp_path):
    root = machine(tmp_path, proc__meminfo=meminfo(500 * GIB), proc__self__cgroup="0::/ci\n",
                   sys__fs__cgroup__ci__cpuDOTmax="100000 100000")
    assert find_jobs({}, root) == Jobs(1, 1)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_no_number(text):
    with pytest.raises(JobsError, match="expected a number from 1 up"):
        find_jobs({"MAX_JOBS": text})
