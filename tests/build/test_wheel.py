"""What is in a wheel, to the file, and what is not made at all."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from sandbox import SMALL, Sandbox

TWO = SMALL.replace('["sm_90a"]', '["sm_90a", "gfx942"]')
GENERATED = {"__init__.py", "dispatch.py", "launcher.so"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two targets, built with the real compiler."""
    copy = Sandbox(tmp_path_factory.mktemp("wheel") / "copy", TWO)
    (copy.root / "aotconv/generated/stray.txt").write_text("no part of anything\n")
    (copy.out / "packs").mkdir()
    (copy.out / "packs/sm_75.pack").write_text("of an older matrix\n")
    copy.gen("build")
    return copy


def make(built, *arguments: str):
    shutil.rmtree(built.root / "dist", ignore_errors=True)
    output = built.gen("wheel", *arguments)
    (wheel,) = (built.root / "dist").glob("*.whl")
    return wheel, output


def generated_names(wheel) -> set[str]:
    inside = "aotconv/generated/"
    return {name.removeprefix(inside) for name in zipfile.ZipFile(wheel).namelist() if name.startswith(inside)}


def test_content_and_tag(built):
    wheel, output = make(built)
    assert generated_names(wheel) == GENERATED | {"packs/sm_90a.pack", "packs/gfx942.pack"}
    outside = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("aotconv/generated/")}
    modules = {f"aotconv/{path.name}" for path in (built.root / "aotconv").glob("*.py")}
    assert outside == modules | {f"aotconv-0.1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")}
    assert re.fullmatch(r"aotconv-0\.1\.0-py3-none-manylinux_2_\d+_x86_64\.whl", wheel.name)
    for target in ("sm_90a", "gfx942"):
        assert re.search(rf"{target} +3 artifacts, 0 dropped, 0\.\d\d MB \(0\.\d\d MB compressed\), admitted 0 of 3", output)
    assert wheel.stat().st_size < 200_000
    assert f"{wheel.name}: sound" in built.gen("verify", str(wheel)).replace(f"{wheel.parent}/", "")


def test_selected_targets_alone(built):
    manifest = (built.out / "manifest.tsv").read_bytes()
    wheel, output = make(built, "--only", "target=gfx942")
    assert generated_names(wheel) == GENERATED | {"packs/gfx942.pack"}
    assert "sm_90a" not in output
    assert (built.out / "manifest.tsv").read_bytes() == manifest
    assert "may name nothing but target" in built.gen("wheel", "--only", "dtype=f16", ok=False)


def test_admitted_and_required(built):
    records = built.root / "gen/records/sm_90a/admission.tsv"
    records.parent.mkdir(parents=True)
    assert "sm_90a: admitted 0 of 3" in built.gen("wheel", "--require-admitted", "sm_90a", ok=False)
    rows = sorted((name.rsplit("/", 1)[1].removesuffix(".cubin"), digest) for name, digest in built.digests().items()
                  if name.endswith(".cubin"))
    lines = ["variant\tsha256\tresult\tproblems\tworst\tdevice\tdriver\tdate"]
    lines += [f"{name}\t{digest}\tpass\t7\t0.25\tNVIDIA H200\t12080\t2026-01-01" for name, digest in rows]
    records.write_text("\n".join(lines) + "\n")
    wheel, output = make(built, "--require-admitted", "sm_90a")
    assert "compile" not in output and "admitted 3 of 3" in output
    assert generated_names(wheel) == GENERATED | {"packs/sm_90a.pack", "packs/gfx942.pack", "tables/sm_90a.json"}
    assert "the wheel has only sm_90a, gfx942" in built.gen("wheel", "--require-admitted", "sm_80", ok=False)
    records.unlink()
    assert "tables/sm_90a.json" not in generated_names(make(built)[0])


def test_verify_finds_a_flipped_bit(built, tmp_path):
    wheel, _ = make(built)
    for name, expected in (("aotconv/generated/packs/sm_90a.pack", "does not match its hash in RECORD"), ("aotconv/pack.py", "RECORD")):
        broken = tmp_path / wheel.name
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(broken, "w") as new:
            for item in old.infolist():
                data = bytearray(old.read(item))
                data[-1] ^= item.filename == name
                new.writestr(item, bytes(data))
        assert f"{name} does not match its hash in RECORD" in built.gen("verify", str(broken), ok=False)
    assert "make it again" in built.gen("verify", str(built.root / "README.md"), ok=False)


def pip(folder, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pip", *arguments, "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    return subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_pip_wheel_without_packs_names_the_command(sandbox):
    done = pip(sandbox.root, "wheel", ".", "-w", "wheels")
    assert done.returncode and "python -m gen wheel" in done.stdout
    assert not list(sandbox.root.glob("wheels/*"))


def test_pip_wheel_with_packs(built):
    done = pip(built.root, "wheel", ".", "-w", "wheels")
    assert done.returncode == 0, done.stdout
    (wheel,) = built.root.glob("wheels/*.whl")
    assert generated_names(wheel) == generated_names(make(built)[0])


def test_pip_wheel_of_another_manifest(built, tmp_path):
    copy = built.copy(tmp_path / "copy")
    copy.edit("gen/matrix.toml", 'ship.f32 = ["', 'ship.f32 = ["m32n16k16w1s1", "')
    copy.gen("render")
    done = pip(copy.root, "wheel", ".", "-w", "wheels")
    assert done.returncode and "and the manifest differ in 2 variants" in done.stdout


def test_editable_install_without_packs(sandbox):
    done = pip(sandbox.root, "install", "-e", ".", "--target", "site")
    assert done.returncode == 0, done.stdout
    (link,) = sandbox.root.glob("site/*.pth")
    assert link.read_text().strip() == str(sandbox.root)
