"""What a change makes the build do again: that, and nothing else. The compiler is a stub that notes what it compiles."""

import os
import time

from sandbox import ANY, FLAT, HEAD, SMALL

FLAT_NAMES = ["fwd1d_flat-f16-m16n16k16w1s1", "fwd1d_flat-f32-m16n16k16w1s1"]
ANY_NAMES = ["fwd1d_any-f32-m16n16k16w1s1"]


def test_nothing(sandbox):
    sandbox.stub()
    assert sandbox.compiled() == ANY_NAMES + FLAT_NAMES
    started = time.monotonic()
    assert "no work to do" in sandbox.stub()
    assert time.monotonic() - started < 1.0
    assert sandbox.compiled() == []


def test_comment_that_renders_away(built):
    built.edit("templates/fwd_flat.py.j2", "{% import", "{# a note #}{% import")
    assert "no work to do" in built.stub()
    assert built.compiled() == []


def test_edit_of_one_template(built):
    built.edit("templates/fwd_flat.py.j2", "\n@triton.jit", "\n# seen by the compiler\n@triton.jit")
    output = built.stub()
    assert built.compiled() == FLAT_NAMES
    assert "fwd1d_any" not in output and "pack sm_90a" in output


def test_edit_of_what_all_templates_include(built):
    built.edit("templates/parts.j2", "import triton.language as tl", "import triton.language as tl  # all of them")
    built.stub()
    assert built.compiled() == ANY_NAMES + FLAT_NAMES


def test_edit_that_keeps_size_and_time(built):
    before = built.digests()
    source = built.out / "kernels/fwd1d_flat.py"
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns
    built.edit("templates/fwd_flat.py.j2", "acc = tl.zeros", "acc = tl.zeroz")
    built.gen("render")
    os.utime(source, ns=times)
    built.edit("templates/fwd_flat.py.j2", "acc = tl.zeroz", "acc = tl.zerox")
    built.stub()
    assert built.compiled() == FLAT_NAMES
    assert built.digests() != before


def test_change_of_toolchain(built):
    built.edit("gen/toolchain.py", '"PYTHONHASHSEED": "0"', '"PYTHONHASHSEED": "1"')
    output = built.stub()
    assert built.compiled() == ANY_NAMES + FLAT_NAMES
    assert "compile the launcher" not in output


def test_change_of_our_own_modules(built):
    """Their edit makes every edge look; only what the compiler is told makes it compile."""
    built.edit("gen/structure.py", '"""What a kernel', '"""Of what a kernel')
    assert "[2/" in built.stub()
    assert built.compiled() == []
    built.edit("gen/structure.py", 'VECTOR_BYTES if held else 1', 'VECTOR_BYTES if held else 2')
    built.stub()
    assert built.compiled() == ANY_NAMES + FLAT_NAMES


def test_change_of_the_launcher(built):
    built.edit("aotconv/csrc/launcher.cpp", "#include", "// a note\n#include")
    output = built.stub()
    assert "compile the launcher" in output and "pack" not in output
    assert built.compiled() == []


def test_variant_added_and_removed(built):
    built.set_matrix(HEAD + FLAT.replace('ship.f32 = ["', 'ship.f32 = ["m32n16k16w1s1", "') + ANY)
    output = built.stub()
    assert built.compiled() == ["fwd1d_flat-f32-m32n16k16w1s1"]
    assert "pack sm_90a" in output and "4 artifacts" in output
    built.set_matrix(SMALL)
    assert "3 artifacts" in built.stub()
    assert built.compiled() == []
    assert not [name for name in os.listdir(built.out / "obj/sm_90a") if "m32n16" in name]
    assert b"m32n16" not in (built.out / "packs/sm_90a.pack").read_bytes()


def test_kernel_and_target_removed(sandbox):
    sandbox.set_matrix(SMALL.replace('["sm_90a"]', '["sm_90a", "gfx942"]'))
    sandbox.stub()
    assert (sandbox.out / "packs/gfx942.pack").exists()
    sandbox.set_matrix(HEAD + ANY)
    sandbox.stub()
    left = sorted(p.relative_to(sandbox.out).as_posix() for folder in ("obj", "packs", "kernels")
                  for p in (sandbox.out / folder).rglob("*.*"))
    assert left == ["kernels/__init__.py", "kernels/fwd1d_any.py", "obj/sm_90a/fwd1d_any-f32-m16n16k16w1s1.cubin",
                    "obj/sm_90a/fwd1d_any-f32-m16n16k16w1s1.json", "packs/sm_90a.json", "packs/sm_90a.pack"]


def test_damage_on_disk(built):
    before = built.digests()
    artifact, pack = built.out / "obj/sm_90a" / f"{ANY_NAMES[0]}.cubin", built.out / "packs/sm_90a.pack"
    for damaged, what in ((artifact, b""), (artifact, b"\0" * artifact.stat().st_size), (artifact.with_suffix(".json"), b"{"),
                          (pack, pack.read_bytes()[:-1]), (pack, b"")):
        damaged.write_bytes(what)
        built.stub()
        assert built.digests() == before, damaged
    artifact.unlink()
    built.stub()
    assert built.digests() == before
    assert built.compiled() == ANY_NAMES * 4


def test_records(built):
    """A record admits the bytes that it names; the table follows the records, and goes with them."""
    digest = built.digests()[f"obj/sm_90a/{ANY_NAMES[0]}.cubin"]
    folder = built.root / "gen/records/sm_90a"
    folder.mkdir(parents=True)
    header = "variant\tsha256\tresult\tproblems\tworst\tdevice\tdriver\tdate\n"
    (folder / "admission.tsv").write_text(f"{header}{ANY_NAMES[0]}\t{digest}\tpass\t9\t0.5\tNVIDIA H200\t12080\t2026-01-01\n")
    assert "admitted 1 of 3" in built.stub()
    (folder / "admission.tsv").write_text(f"{header}{ANY_NAMES[0]}\t{'0' * 64}\tpass\t9\t0.5\tNVIDIA H200\t12080\t2026-01-01\n")
    assert "admitted 0 of 3" in built.stub()
    (folder / "admission.tsv").unlink()
    built.stub()
    assert not (built.out / "tables/sm_90a.json").exists()


def test_times_in_the_future(built):
    ahead = time.time() + 7200
    os.utime(built.out / "kernels/fwd1d_any.py", (ahead, ahead))
    built.stub()
    assert "no work to do" in built.stub()
    source = built.root / "gen/compile.py"
    os.utime(source, (ahead, ahead))
    output = built.stub()
    assert output.count("was modified in the future") == 1 and "gen/compile.py" in output
    built.edit("templates/fwd_any.py.j2", "\n@triton.jit", "\n# seen by the compiler\n@triton.jit")
    built.stub()
    assert built.compiled() == ANY_NAMES


def test_clock_set_back(built):
    """Ninja's log then speaks of times ahead: by them, every later edit would look old."""
    log = built.out / ".ninja_log"
    head, *lines = [line.split("\t") for line in log.read_text().splitlines()]
    for words in lines:
        words[2] = str(int(words[2]) + 7200 * 10**9)
    log.write_text("\n".join(["\t".join(words) for words in (head, *lines)]) + "\n")
    built.edit("templates/fwd_any.py.j2", "\n@triton.jit", "\n# seen by the compiler\n@triton.jit")
    built.stub()
    assert built.compiled() == ANY_NAMES
    assert "no work to do" in built.stub()


def test_selection_changes_nothing_else(built):
    """--only chooses what ninja makes; manifest, build.ninja and committed files stay."""
    files = {p: p.read_bytes() for name in ("build.ninja", "manifest.tsv", "dispatch.py") for p in [built.out / name]}
    output = built.gen("build", "--only", "dtype=f32,kernel=fwd1d_any")
    assert "[1/1] compile fwd1d_any for sm_90a" in output
    files.pop(built.out / "build.ninja")  # the stub's own differs in the compiler's name
    assert all(path.read_bytes() == data for path, data in files.items())


def test_table_alone_compiles_nothing(built):
    artifact = built.out / "obj/sm_90a" / f"{ANY_NAMES[0]}.json"
    text = artifact.read_text()
    artifact.unlink()
    assert "run python -m gen build" in built.gen("table", ok=False)
    artifact.write_text(text)
    (built.out / "packs/sm_90a.pack").unlink()
    assert "3 artifacts" in built.gen("table")
    assert built.compiled() == []
    assert (built.out / "packs/sm_90a.pack").exists()


def test_another_matrix_needs_another_folder(sandbox):
    (sandbox.root / "mine.toml").write_text(HEAD + ANY)
    assert "give it its own --out" in sandbox.gen("render", "--matrix", "mine.toml", ok=False)
    sandbox.gen("render", "--matrix", "mine.toml", "--out", "mine out")
    assert (sandbox.root / "mine out/kernels/fwd1d_any.py").exists()
