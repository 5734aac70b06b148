"""The suite itself: what is skipped without a GPU is what needs one, and nothing else."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_only_the_gpu_folder_is_skipped():
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/unit/test_candidates.py", "tests/gpu/test_fuzz.py"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "3 passed" in shown, shown
