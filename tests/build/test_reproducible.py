"""Same inputs, same bytes: the real compilers, in two folders, at two times, in two environments."""

import hashlib
import os
import time

from sandbox import SMALL, Sandbox

MATRIX = SMALL.replace('["sm_90a"]', '["sm_80", "sm_90a", "gfx942"]')


def test_two_folders_two_environments(tmp_path):
    first = Sandbox(tmp_path / "one", MATRIX)
    poisoned = tmp_path / "poisoned cache"
    second = Sandbox(
        tmp_path / "another folder" / "with a longer name", MATRIX, MAX_JOBS="1", PYTHONHASHSEED="12345", TZ="Asia/Tokyo",
        TRITON_CACHE_DIR=str(poisoned), TRITON_DISABLE_LINE_INFO="0", TRITON_DEFAULT_FP_FUSION="0", LLVM_IR_ENABLE_DUMP="0",
        DISABLE_LLVM_OPT="1", DISABLE_PTXAS_OPT="1", SOURCE_DATE_EPOCH="86400", LC_ALL="C",
    )
    old = time.time() - 86400
    for path in [*second.root.glob("gen/*.py"), *second.root.glob("templates/*")]:
        os.utime(path, (old, old))
    poison(poisoned)
    first.gen("wheel")
    second.gen("wheel")
    assert len([name for name in first.digests() if name.startswith("obj/")]) == 9
    assert first.digests() == second.digests()
    assert wheel_digest(first) == wheel_digest(second)
    assert not str(first.root).encode() in b"".join(p.read_bytes() for p in first.out.glob("packs/*"))
    assert sorted(p.name for p in poisoned.iterdir()) == ["trap"]


def poison(folder):
    """A cache that must be neither read nor written."""
    folder.mkdir()
    (folder / "trap").write_text("never read")


def wheel_digest(sandbox) -> tuple[str, str]:
    (wheel,) = (sandbox.root / "dist").glob("*.whl")
    return wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()
