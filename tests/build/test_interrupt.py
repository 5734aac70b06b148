"""A build that is killed, interrupted, or not alone: the next one gives the same bytes."""

import os
import random
import signal
import time

import pytest
from sandbox import BUILD_WITH_STUB, SMALL

STUB = ("-c", BUILD_WITH_STUB, "tests.build.stub_compiler")
MOMENTS = [round(random.Random(7).uniform(0.02, 1.0), 3) for _ in range(8)]


def change(sandbox):
    """An edit that leaves nothing as it was: every kernel compiles, the launcher too."""
    sandbox.edit("templates/parts.j2", "import triton.language as tl", "import triton.language as tl  # changed")
    sandbox.edit("aotconv/csrc/launcher.cpp", "#include", "// a note\n#include")
    (sandbox.out / "launcher.so").unlink()


@pytest.fixture(scope="session")
def changed_digests(stub_build, tmp_path_factory):
    """What a build that nobody disturbs makes of the change."""
    copy = stub_build.copy(tmp_path_factory.mktemp("undisturbed") / "copy")
    change(copy)
    copy.stub()
    return copy.digests()


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_with_all_its_children(built, changed_digests, moment):
    change(built)
    process = built.start(*STUB, start_new_session=True)
    time.sleep(moment)
    for pid in session_of(process.pid):
        kill(pid)
    process.communicate()
    built.stub()
    assert built.digests() == changed_digests
    assert "no work to do" in built.stub()
    assert not [p for p in built.out.rglob(".*.tmp")]


@pytest.mark.parametrize("moment", MOMENTS[::3])
def test_killed_alone(built, changed_digests, moment):
    """Ninja and its compilers live on; the next build waits for them."""
    change(built)
    process = built.start(*STUB)
    time.sleep(moment)
    process.kill()
    built.stub()
    process.communicate()
    assert built.digests() == changed_digests


def test_two_builds_at_once(built, changed_digests):
    change(built)
    both = [built.start(*STUB) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("another build works in" in output for output in outputs) == 1
    assert built.digests() == changed_digests
    assert len(built.compiled()) == 3


@pytest.mark.parametrize("moment", [0.05, 0.15, 0.2, 0.25, 0.3, 0.4])
def test_interrupt_during_render(built, moment):
    built.set_matrix(SMALL.replace("artifacts = 20", "artifacts = 21"))
    process = built.start("-m", "gen", "render")
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    process.communicate()
    (built.out / "dispatch.py").read_text().index("TARGETS")
    built.gen("render")
    assert "0 files changed" in built.gen("render")


def test_interrupt_during_build(built, changed_digests):
    """Control-C reaches the whole group: the build ends at once with 130, and nothing of it runs on."""
    change(built)
    process = built.start("-m", "gen", "build", start_new_session=True)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=10)[0]
    assert process.returncode == 130 and "interrupted" in output
    built.stub()
    assert built.digests() == changed_digests


@pytest.mark.parametrize("sent, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_to_the_build_alone(built, changed_digests, sent, status):
    """As CI cancels: ninja and its compilers end with the build."""
    change(built)
    process = built.start("-m", "gen", "build", start_new_session=True)
    time.sleep(1.0)
    process.send_signal(sent)
    process.communicate(timeout=10)
    assert process.returncode == status
    deadline = time.monotonic() + 5  # a compiler notices when it is back in Python
    while session_of(process.pid)[1:] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert session_of(process.pid)[1:] == []
    built.stub()
    assert built.digests() == changed_digests


def session_of(leader: int) -> list[int]:
    """Every process of the session, the leader first; ninja gives each of its children a group of its own."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [leader, *(pid for pid in pids if pid != leader and session(pid) == leader)]


def session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def kill(pid: int):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
