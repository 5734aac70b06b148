"""Importing opens nothing, starts nothing, writes nothing; the mode is read once and checked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def python(program, **environment):
    """Output of a fresh process; its own failure fails the test."""
    path = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run([sys.executable, "-B", "-c", program], env={**path, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


WATCH = """
import json, sys
sys.path.insert(0, {gen!r})
import torch
import deployment_probe as probe
probe.watch()
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
import aotconv
aotconv.conv2d, aotconv.explain, aotconv.AotconvError
print(json.dumps([probe.events, [name for name in opened if "generated" in name], torch.cuda.is_initialized(),
                  sorted(set(sys.modules) & {{"triton", "jinja2", "ninja", "networkx", "gen", "hatchling"}}),
                  sorted(name for name in sys.modules if name.startswith("aotconv.generated"))]))
"""


def test_import_does_nothing_else():
    events, opened, initialised, foreign, generated = json.loads(python(WATCH.format(gen=str(ROOT / "gen"))))
    assert (events, opened, initialised, foreign, generated) == ([], [], False, [], [])


def test_without_torch_it_stays_lazy():
    assert python("import sys, aotconv; print('torch' in sys.modules, aotconv.__all__ == dir(aotconv))") == "False True\n"


def test_operators_are_there_when_torch_was_first():
    assert "aotconv.convolution" in python("import torch, aotconv; print(torch.ops.aotconv.convolution.default)")


def test_an_unknown_name_is_refused():
    import aotconv

    with pytest.raises(AttributeError, match="conv2d"):
        aotconv.conv4d
    with pytest.raises(ImportError):
        exec("from aotconv import conv4d")


COST = """
import time, torch
start = time.process_time()  # of this process alone: other builds may run beside the test
import aotconv
aotconv.conv2d, aotconv.info
print(time.process_time() - start)
"""


def test_import_costs_under_a_tenth_of_a_second_on_top_of_torch():
    cost = min(float(python(COST)) for _ in range(2))
    print(f"import aotconv: {cost * 1e3:.0f} ms on top of torch")
    assert cost < 0.1


# ---- modes ------------------------------------------------------------------------------------------------------------


def test_a_bad_mode_says_what_is_expected():
    program = "import torch\ntry:\n    import aotconv\nexcept ValueError as error:\n    print(error)"
    assert python(program, AOTCONV_MODE="fast") == "AOTCONV_MODE='fast', expected one of fallback, strict, off\n"


CPU = "import torch, aotconv; y = aotconv.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3)); print(y.item(), aotconv.info().mode)"


@pytest.mark.parametrize("mode", ("fallback", "strict", "off"))
def test_cpu_tensors_are_served_in_every_mode(mode):
    assert python(CPU, AOTCONV_MODE=mode) == f"9.0 {mode}\n"
