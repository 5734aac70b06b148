"""What a build says when something cannot be built, and what it still builds."""


from sandbox import ANY, FLAT, HEAD, SMALL

BROKEN = "tests.build.broken_compilers"
FLAT16, FLAT32 = "fwd1d_flat-f16-m16n16k16w1s1", "fwd1d_flat-f32-m16n16k16w1s1"
ANY32 = "fwd1d_any-f32-m16n16k16w1s1"


def test_kernel_that_does_not_compile(sandbox):
    """The real compiler. One kernel is wrong for each dtype; the other kernel and the launcher are built."""
    sandbox.edit("templates/fwd_flat.py.j2", "acc = tl.zeros", "acc = tl.zeroz")
    output = sandbox.gen("build", ok=False)
    for name in (FLAT16, FLAT32):
        assert f"{name} for sm_90a does not compile: " in output
    assert "zeroz" in output and "error: the build failed" in output
    built = set(sandbox.digests())
    assert built == {"launcher.so", f"obj/sm_90a/{ANY32}.cubin"}
    sandbox.edit("templates/fwd_flat.py.j2", "acc = tl.zeroz", "acc = tl.zeros")
    output = sandbox.gen("build")
    assert "3 artifacts" in output and "fwd1d_any" not in output


def test_one_variant_of_an_edge_fails(sandbox):
    """The edge's other variants are written, and kept."""
    output = sandbox.stub(f"{BROKEN}.raises", ok=False)
    assert f"{FLAT16} for sm_90a does not compile: RuntimeError: no such instruction" in output
    assert sorted(sandbox.digests()) == ["launcher.so", f"obj/sm_90a/{ANY32}.cubin", f"obj/sm_90a/{FLAT32}.cubin"]


def test_compiler_killed(sandbox):
    output = sandbox.stub(f"{BROKEN}.killed", ok=False)
    assert f"the compiler was killed while compiling {FLAT16} for sm_90a (out of memory, most likely: set MAX_JOBS lower)" in output
    assert f"obj/sm_90a/{ANY32}.cubin" in sandbox.digests()


def test_variant_that_spills_is_dropped(sandbox):
    output = sandbox.stub(f"{BROKEN}.spills")
    assert "2 artifacts, 1 dropped" in output
    assert f"{FLAT16} for sm_90a: compiled and dropped: spills 4096 bytes a thread > 256" in sandbox.gen("why", FLAT16)
    assert not (sandbox.out / f"obj/sm_90a/{FLAT16}.cubin").exists()
    assert "no work to do" in sandbox.stub(f"{BROKEN}.spills")


def test_launcher_that_does_not_compile(sandbox):
    sandbox.edit("aotconv/csrc/launcher.cpp", "#include", "#error nothing to see\n#include")
    output = sandbox.stub(ok=False)
    assert "nothing to see" in output and "the launcher does not compile: exit status 1" in output
    assert len(sandbox.digests()) == 4


def test_no_gcc(sandbox):
    sandbox.environment["PATH"] = str(sandbox.root)
    output = sandbox.gen("build", ok=False)
    assert "g++ does not run" in output and "install GCC" in output and "Traceback" not in output


def test_over_budget(sandbox):
    sandbox.set_matrix(SMALL.replace("artifacts = 20", "artifacts = 2"))
    output = sandbox.gen("build", ok=False)
    assert "sm_90a: an estimated 3 artifacts > the budget of 2: ship fewer configs, or raise [budgets]" in output
    assert not (sandbox.out / "obj").exists()
    assert "3 artifacts > the budget of 2" in sandbox.gen("plan", ok=False)


def test_shipped_and_rejected(sandbox):
    sandbox.set_matrix(HEAD + FLAT.replace("m16n16k16w1s1", "m16n16k4w1s1") + ANY)
    assert ("fwd1d_flat-f16-m16n16k4w1s1 is shipped but rejected: BLOCK_K 4 < 16, the least that tl.dot takes for f16; "
            "take it out of ship") in sandbox.gen("render", ok=False)


def test_selection_of_nothing_known(sandbox):
    assert "known are target, op, rank, dtype, layout, kernel" in sandbox.gen("build", "--only", "arch=sm_90a", ok=False)
    assert "--only target=sm_80: known are sm_90a" in sandbox.gen("build", "--only", "target=sm_80", ok=False)
    assert "no variant has all of them" in sandbox.gen("list", "--only", "kernel=fwd1d_any,dtype=f16", ok=False)


def test_max_jobs_that_is_no_number(sandbox):
    sandbox.environment["MAX_JOBS"] = "many"
    assert "MAX_JOBS='many', expected a number from 1 up" in sandbox.gen("build", ok=False)


def test_record_that_cannot_be_read(built):
    path = built.root / "gen/records/sm_90a/admission.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("variant\tsha256\n")
    output = built.stub(ok=False)
    assert "admission.tsv: its first line is ['variant', 'sha256'], expected" in output
    assert "FAILED" in output
