"""Tests in this folder need a GPU; what they share is in tools.py."""

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def kernels_serve(request, monkeypatch):
    """Strict mode in test_forward.py: no regret would leave some of its problems to aten, and its subject is the kernels.
    A test marked `aten` is about what aten answers."""
    if request.module.__name__.endswith("test_forward") and not request.node.get_closest_marker("aten"):
        from aotconv.operators import runtime

        monkeypatch.setattr(runtime, "mode", "strict")


def pytest_collection_modifyitems(items):
    """Skip this folder's tests without a GPU. The hook is handed every test of the session."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
