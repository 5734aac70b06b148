"""Random convolutions from fixed seeds, and those that once failed. The long run is `python -m gen fuzz`."""

import pytest
import torch

from gen.fuzz import attempt, random_exercise

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

ONCE_FAILED = [667, 705, 800, 840]  # seeds of `python -m gen fuzz` that found a fault, kept for ever


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    from aotconv.operators import runtime

    monkeypatch.setattr(runtime, "mode", "strict")


@pytest.mark.parametrize("seed", [*range(300), *ONCE_FAILED])
def test_seed(seed):
    fault, _ = attempt(random_exercise(seed))
    assert fault is None
