"""The deployment proof's own senses: the audit hook hears, the finder hides, samples are the reference's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gen import deployment, deployment_probe

MISDEEDS = {
    "file opened for writing": "open({path!r}, 'w')",
    "subprocess.Popen": "__import__('subprocess').run(['true'])",
    "os.fork": "__import__('os').fork() or __import__('os')._exit(0)",
    "os.posix_spawn": "__import__('os').posix_spawn('/bin/true', ['true'], {{}})",
    "os.mkdir": "__import__('os').mkdir({path!r})",
    "socket.connect": "__import__('socket').create_connection(('127.0.0.1', 9))",
    "import of triton": "__import__('triton')",
    "import of triton.language": "__import__('triton.language')",
}
PROBE = """
import sys
sys.path.insert(0, {folder!r})
import deployment_probe as probe
probe.watch()
try:
    {deed}
except Exception as error:
    print(type(error).__name__, file=sys.stderr)
import importlib.util
assert importlib.util.find_spec("triton") is None and importlib.util.find_spec("json") is not None
sys.stdout.write(probe.json.dumps(probe.events))
"""


@pytest.mark.parametrize("heard", MISDEEDS)
def test_hook_hears(heard, tmp_path):
    deed = MISDEEDS[heard].format(path=str(tmp_path / "new"))
    program = PROBE.format(folder=str(Path(deployment_probe.__file__).parent), deed=deed)
    done = subprocess.run([sys.executable, "-I", "-B", "-c", program], capture_output=True, text=True, check=True)
    assert any(event.startswith(heard) for event in json.loads(done.stdout)), done.stdout
    assert "triton" not in heard or done.stderr == "ModuleNotFoundError\n"


def test_hook_is_silent_on_reading():
    program = PROBE.format(folder=str(Path(deployment_probe.__file__).parent), deed="open('/proc/self/status').read()")
    done = subprocess.run([sys.executable, "-I", "-B", "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_problems_are_those_of_the_named_models():
    rows = [json.loads(line) for line in deployment.PROBLEMS.read_text().splitlines()]
    assert len(rows) == 428 and {row["batch"] for row in rows} == {1, 8}
    assert {row["model"] for row in rows} == {"resnet50", "mobilenet_v2", "convnext_tiny", "sd15_unet", "deeplabv3_resnet50",
                                             "encodec_24khz", "r3d_18"}
    for row in rows:
        deployment.problem_of(row)


def found(**row):
    """A report's material in which everything is well, but for one row."""
    quiet = {"events": [], "faults": [], "triton": False}
    judged = {"strict": [{"tier": "rule", "error": 0.5, **row}], "fallback": [{"tier": "rule", "error": 0.5}]}
    return {"judged": judged, "start": quiet, "speed": quiet, "ends": {"strict": quiet}, "left": []}


def test_every_kind_of_fault_counts():
    assert deployment.faults(found()) == []
    assert len(deployment.faults(found(error=1.5))) == 1
    assert len(deployment.faults(found(error=float("nan")))) == 1
    assert len(deployment.faults(found(raised="no kernel"))) == 1
    assert len(deployment.faults(found(wrong="strides"))) == 1
    for change in (dict(left=["pack"]), dict(start={"events": ["os.fork"]}), dict(ends={"strict": {"events": [], "faults": ["cut"], "triton": True}})):
        assert deployment.faults({**found(), **change})
