"""Fixtures of the build's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sandbox import Sandbox


@pytest.fixture
def sandbox(tmp_path):
    """A copy of the repository with the small matrix."""
    return Sandbox(tmp_path / "copy")


@pytest.fixture(scope="session")
def stub_build(tmp_path_factory):
    """A copy that was built once with the stub compiler."""
    base = Sandbox(tmp_path_factory.mktemp("stub") / "copy")
    base.stub()
    return base


@pytest.fixture
def built(stub_build, tmp_path):
    """A copy that was built with the stub compiler, in a folder with a space in its name."""
    copy = stub_build.copy(tmp_path / "a copy")
    copy.compiled()
    return copy
