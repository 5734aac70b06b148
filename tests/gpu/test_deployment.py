"""The deployment proof, where a GPU and a wheel are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def wheels():
    named = os.environ.get("AOTCONV_WHEEL")
    return [Path(named)] if named else sorted((ROOT / "dist").glob("aotconv-*.whl"), key=os.path.getmtime)


@pytest.mark.skipif(not wheels(), reason="needs a wheel: python -m gen wheel, or AOTCONV_WHEEL=FILE")
def test_d1_d3_deployment_check(tmp_path):
    found = tmp_path / "found.json"
    done = subprocess.run([ROOT / "scripts" / "deployment_check", wheels()[-1], "--json", found, "--repeats", "1"],
                          env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(found.read_text())["problems"] == 428
