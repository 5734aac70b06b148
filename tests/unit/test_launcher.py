"""The native launcher against a fake driver: no GPU, the real library, the real C interface."""

import ctypes
import random
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aotconv import native
from gen import native as build

HERE = Path(__file__).parent
IMAGE = b"not a real binary"
A, B, C, OUT, WORKSPACE = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
STREAM = 0x77


# ---- plans, as the planner writes them ------------------------------------------------------------------------------


def plan(*steps, sizes=(2, 3), strides=(3, 1), dtype=6, workspace=0, zero=0):
    head = [native.PLAN_MAGIC, dtype, len(sizes), *sizes, *strides, workspace, zero, len(steps)]
    return head + [word for step in steps for word in step]


def step(handle, *params, grid=(4, 5, 6), threads=128, shared=0, cluster=1):
    return [handle, *grid, threads, shared, cluster, len(params)] + [word for param in params for word in param]


def tiled(slot=0, offset=0, dims=(64, 32), strides=(128,), box=(8, 4), modes=(3, 2, 0), dtype=9):
    recipe = [slot, offset, 0, dtype, len(dims), *dims, *strides, *box, *([1] * len(dims)), *modes]
    return (9, len(recipe), *recipe)


def im2col(slot=1, offset=64, dims=(64, 28, 28, 2), strides=(128, 3584, 100352)):
    recipe = [slot, offset, 1, 9, 4, *dims, *strides, -1, -1, -2, -3, 64, 128, 1, 2, 2, 1, 3, 2, 0]
    return (9, len(recipe), *recipe)


# ---- a launcher and a driver of its own for each test ---------------------------------------------------------------


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    if not shutil.which("g++") or not shutil.which("gcc"):
        pytest.skip("gcc and g++ are needed to build the launcher and the fake driver")
    folder = tmp_path_factory.mktemp("launcher")
    subprocess.run(build.compile_command(folder / "launcher.so", build.torch_include()), check=True)
    for name, flags in (("fake", []), ("old", ["-DOLD"])):
        command = ["gcc", "-O1", "-shared", "-fPIC", *flags, HERE / "fake_driver.c", "-o", folder / f"{name}.so"]
        subprocess.run(command, check=True)
    for name in ("libtorch_cpu.so", "libtorch_cuda.so"):
        command = ["gcc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", HERE / "fake_torch.c", "-o", folder / name]
        subprocess.run(command, check=True)
    return folder


class Rig:
    def __init__(self, built, folder, kind="cuda", driver="fake", version=13020):
        # Copies: a library's state belongs to its file, and each test wants its own.
        launcher = shutil.copy(built / "launcher.so", folder / f"launcher-{kind}-{driver}.so")
        fake = shutil.copy(built / f"{driver}.so", folder / f"{driver}-{kind}.so")
        self.fake = ctypes.CDLL(str(fake))
        self.fake.fake_log.restype = ctypes.c_char_p
        self.fake.fake_hammer.restype = ctypes.c_double
        self.native = native.Native(launcher)
        self.reports = []
        self.native.set_report(self.reports.append)
        self.fake.fake_version(version)
        self.native.open_driver(kind, str(fake))

    def fail(self, name, code=700):
        self.fake.fake_fail(name.encode(), code)

    def load(self, device=0, symbol="kernel", shared=0, image=IMAGE):
        return self.native.load_kernel(device, image, symbol, shared)

    def launch(self, words, layout=(), device=0, pointers=(A, B, C, OUT, WORKSPACE)):
        """What the driver was asked, as lines."""
        self.fake.fake_layout((ctypes.c_int * len(layout))(*layout), len(layout))
        self.fake.fake_clear()
        self.native.launch(words, device, STREAM, pointers)
        return self.log()

    def log(self):
        return self.fake.fake_log().decode().splitlines()

    def make_current(self, device):
        self.fake.fake_make_current(ctypes.c_void_p(0x1000 + device))


@pytest.fixture
def rig(built, tmp_path):
    made = Rig(built, tmp_path)
    made.make_current(0)
    yield made
    made.fake.fake_make_current(None)


def little(form, value):
    return struct.pack("<" + form, value).hex()


# ---- launching ------------------------------------------------------------------------------------------------------


def test_every_parameter_kind_reaches_the_kernel_as_its_bytes(rig):
    handle = rig.load()
    one_and_a_half = struct.unpack("<I", struct.pack("<f", 1.5))[0]
    params = [(0, 0), (5, -7), (1, 16), (2, 0), (7, one_and_a_half), (3, 8)]
    params += [(6, -(2**40)), (4, 256), (8, 0), (5, 2**32 - 1)]
    lines = rig.launch(plan(step(handle, *params)), (8, 4, 8, 8, 4, 8, 8, 8, 8, 4))
    expected = [
        *(little("Q", A), little("i", -7), little("Q", B + 16), little("Q", C), little("f", 1.5), little("Q", OUT + 8)),
        *(little("q", -(2**40)), little("Q", WORKSPACE + 256), "00" * 8, "ff" * 4),
    ]
    assert lines == ["cuLaunchKernel grid=4,5,6 block=128,1,1 shared=0 stream=0x77 params=" + ",".join(expected)]


def test_an_absent_slot_is_null_whatever_its_offset(rig):
    lines = rig.launch(plan(step(rig.load(), (2, 64))), (8,), pointers=(A, B, None, OUT, None))
    assert lines[0].endswith("params=" + "00" * 8)


def test_tensor_maps_are_encoded_into_aligned_parameters(rig):
    lines = rig.launch(plan(step(rig.load(), (5, 1), tiled(), im2col(), (5, 2))), (4, 128, 128, 4))
    assert lines[0] == (
        "tiled dtype=9 base=0x10000 aligned=1 dims=64,32 strides=128 box=8,4 elements=1,1 modes=0,3,2,0"
    )
    assert lines[1] == (
        "im2col dtype=9 base=0x20040 aligned=1 dims=64,28,28,2 strides=128,3584,100352 lower=-1,-1 upper=-2,-3"
        " channels=64 pixels=128 elements=1,2,2,1 modes=0,3,2,0"
    )
    assert lines[2].endswith("params=" + ",".join([little("i", 1), "ff" * 128, "ff" * 128, little("i", 2)]))


SMALL, LARGE = (64, 1024), (64, 1025)  # just under and just over 128 KiB with a stride of 128 bytes


@pytest.mark.parametrize("dims, version, cleared", [(SMALL, 13010, True), (SMALL, 13020, False), (LARGE, 13010, False)])
def test_bit_21_of_small_tiled_maps_is_cleared_for_drivers_up_to_13_1(built, tmp_path, dims, version, cleared):
    rig = Rig(built, tmp_path, version=version)
    lines = rig.launch(plan(step(rig.load(), tiled(dims=dims))), (128,))
    launched = next(line for line in lines if line.startswith("cuLaunchKernel"))
    second_word = "ffffdfffffffffff" if cleared else "ff" * 8
    assert launched.endswith("params=" + "ff" * 8 + second_word + "ff" * 112)


def test_the_workspace_is_zeroed_before_the_first_step_and_only_as_far_as_asked(rig):
    handle = rig.load()
    lines = rig.launch(plan(step(handle), step(handle, grid=(1, 1, 1)), workspace=4096, zero=256))
    assert [line.split(" block")[0] for line in lines] == [
        "cuMemsetD8Async at=0x50000 value=0 count=256 stream=0x77",
        "cuLaunchKernel grid=4,5,6",
        "cuLaunchKernel grid=1,1,1",
    ]


def test_a_plan_with_a_workspace_is_refused_without_one(rig):
    with pytest.raises(native.NativeError, match="needs a workspace of 4096 bytes and was given none"):
        rig.launch(plan(step(rig.load()), workspace=4096), pointers=(A, B, C, OUT, None))


def test_clusters_multiply_the_grid_and_are_spread(rig):
    lines = rig.launch(plan(step(rig.load(), grid=(4, 2, 1), cluster=2)))
    assert lines == [
        "attribute 4=2,1,1",
        "attribute 5=1,0,0",
        "cuLaunchKernelEx grid=8,2,1 block=128,1,1 shared=0 stream=0x77 params=",
    ]


@pytest.mark.parametrize("grid", [(0, 5, 6), (4, 0, 6), (4, 5, 0)])
def test_an_empty_grid_launches_nothing(rig, grid):
    assert rig.launch(plan(step(rig.load(), grid=grid), workspace=64, zero=64), pointers=(A, B, C, OUT, None)) == []


@pytest.mark.parametrize("shared, asked", [(0, []), (49152, []), (49153, ["cuFuncSetAttribute 8=49153"])])
def test_shared_memory_over_48_kib_is_asked_for_at_load(rig, shared, asked):
    handle = rig.load(shared=shared)
    assert [line for line in rig.log() if "SetAttribute" in line] == asked
    assert f"shared={shared} " in rig.launch(plan(step(handle, shared=shared)))[0]


def test_more_shared_memory_than_loaded_for_is_refused(rig):
    with pytest.raises(native.NativeError, match="wants 60000 bytes of shared memory, and kernel 1 was .* for 50000"):
        rig.launch(plan(step(rig.load(shared=50000), shared=60000)))


def test_the_same_kernel_is_loaded_once_for_each_device(rig):
    first, again = rig.load(), rig.load(shared=50000)
    other_symbol, other_device = rig.load(symbol="other"), rig.load(device=1)
    assert (first, again, other_symbol, other_device) == (1, 1, 2, 3)
    assert rig.log().count("cuModuleLoadData") == 3
    assert rig.launch(plan(step(first, shared=50000)))


def test_a_kernel_of_another_device_is_refused(rig):
    with pytest.raises(native.NativeError, match="loaded on device 1, and the tensors are on device 0"):
        rig.launch(plan(step(rig.load(device=1))))


def test_attributes_are_read_through(rig):
    assert rig.native.device_attribute(1, 16) == 1016
    assert rig.native.function_attribute(rig.load(), 4) == 104
    with pytest.raises(native.NativeError, match="no kernel is loaded under handle 9"):
        rig.native.function_attribute(9, 4)


# ---- devices and contexts -------------------------------------------------------------------------------------------


def test_opening_the_driver_initialises_nothing(rig):
    assert rig.log() == []
    rig.load()
    assert rig.log()[0] == "cuInit 0"


def test_a_context_that_is_current_is_left_alone(rig):
    rig.load()
    assert not [line for line in rig.log() if line.startswith(("push", "pop"))]


def test_another_devices_context_is_pushed_and_popped_around_the_launch(rig):
    handle = rig.load(device=1)
    lines = rig.launch(plan(step(handle)), device=1)
    assert [line.split(" grid")[0] for line in lines] == ["push 0x1001", "cuLaunchKernel", "pop 0x1001"]


def test_a_failed_launch_still_pops_the_context(rig):
    handle = rig.load(device=1)
    rig.fail("cuLaunchKernel")
    with pytest.raises(native.NativeError):
        rig.launch(plan(step(handle)), device=1)
    assert rig.log()[-1] == "pop 0x1001"


def test_a_primary_context_is_retained_once(rig):
    for symbol in "abc":
        rig.load(device=1, symbol=symbol)
    assert rig.log().count("cuDevicePrimaryCtxRetain 1") == 1


@pytest.mark.parametrize("device", [-1, 64])
def test_a_device_out_of_range_is_refused(rig, device):
    with pytest.raises(native.NativeError, match=f"device {device} is outside 0..63"):
        rig.load(device=device)


def test_hip_launches_and_restores_the_device(built, tmp_path):
    rig = Rig(built, tmp_path, kind="hip")
    handle = rig.load(device=1, shared=60000)
    lines = rig.launch(plan(step(handle, (0, 0), threads=256, shared=60000), workspace=64, zero=64), (8,), device=1)
    assert lines == [
        "hipSetDevice 1",
        "hipMemsetD8Async at=0x50000 value=0 count=64 stream=0x77",
        "hipModuleLaunchKernel grid=4,5,6 block=256,1,1 shared=60000 stream=0x77 params=" + little("Q", A),
        "hipSetDevice 0",
    ]


@pytest.mark.parametrize(
    "change, sentence",
    [({"cluster": 2}, "cannot launch clusters"), ({"param": tiled()}, "HIP has none")],
)
def test_hip_refuses_what_only_cuda_has(built, tmp_path, change, sentence):
    rig = Rig(built, tmp_path, kind="hip")
    params = [change.pop("param")] if "param" in change else []
    with pytest.raises(native.NativeError, match=sentence):
        rig.launch(plan(step(rig.load(), *params, **change)))


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"cluster": 2}, "cannot launch clusters"),
        ({"param": tiled()}, "cannot encode one: update the GPU driver"),
        ({"param": im2col()}, "cannot encode one: update the GPU driver"),
    ],
)
def test_an_old_driver_serves_plain_kernels_and_refuses_the_rest(built, tmp_path, change, sentence):
    rig = Rig(built, tmp_path, driver="old")
    assert rig.launch(plan(step(rig.load())))
    params = [change.pop("param")] if "param" in change else []
    with pytest.raises(native.NativeError, match=sentence):
        rig.launch(plan(step(rig.load(), *params, **change)))


# ---- drivers that fail ----------------------------------------------------------------------------------------------


def test_an_absent_driver_is_one_sentence(built, tmp_path):
    launcher = native.Native(shutil.copy(built / "launcher.so", tmp_path / "l.so"))
    with pytest.raises(native.NativeError, match="cannot be loaded .*nowhere.so.*install the GPU driver"):
        launcher.open_driver("cuda", str(tmp_path / "nowhere.so"))
    for call in (launcher.driver_version, lambda: launcher.load_kernel(0, IMAGE, "kernel")):
        with pytest.raises(native.NativeError, match="not open"):
            call()


def test_a_library_that_is_no_driver_is_refused(built, tmp_path):
    launcher = native.Native(shutil.copy(built / "launcher.so", tmp_path / "l.so"))
    with pytest.raises(native.NativeError, match="has no cuInit: it is too old or not a driver"):
        launcher.open_driver("cuda", "libm.so.6")


def test_one_process_drives_one_kind(rig, built):
    rig.native.open_driver("cuda", "ignored the second time")
    with pytest.raises(native.NativeError, match="CUDA driver is already open in this process, and HIP was asked for"):
        rig.native.open_driver("hip")
    with pytest.raises(native.NativeError, match="'metal' is unknown; expected one of cuda, hip"):
        rig.native.open_driver("metal")


CUDA_LOAD = ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent_v2"]
CUDA_LOAD += ["cuCtxPopCurrent_v2", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"]
HIP_LOAD = ["hipInit", "hipGetDevice", "hipSetDevice", "hipModuleLoadData", "hipModuleGetFunction"]


@pytest.mark.parametrize("kind, name", [("cuda", n) for n in CUDA_LOAD] + [("hip", n) for n in HIP_LOAD])
def test_every_driver_error_at_load_is_a_sentence_with_its_number(built, tmp_path, kind, name):
    rig = Rig(built, tmp_path, kind)
    rig.fail(name, 209)
    with pytest.raises(native.NativeError, match=rf"failed with error 209 \(fake {kind} error 209\)") as caught:
        rig.load(device=1, shared=50000)
    assert caught.value.status == 209
    rig.fail("")
    assert rig.load(device=1, shared=50000) >= 1


CUDA_LAUNCH = ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemsetD8Async", "cuLaunchKernel"]
CUDA_LAUNCH += ["cuLaunchKernelEx", "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"]
HIP_LAUNCH = ["hipGetDevice", "hipSetDevice", "hipMemsetD8Async", "hipModuleLaunchKernel"]


@pytest.mark.parametrize("kind, name", [("cuda", n) for n in CUDA_LAUNCH] + [("hip", n) for n in HIP_LAUNCH])
def test_every_driver_error_at_launch_is_a_sentence_with_its_number(built, tmp_path, kind, name):
    rig = Rig(built, tmp_path, kind)
    handle = rig.load(device=1)
    steps = [step(handle)] + ([step(handle, tiled(), im2col(), cluster=2)] if kind == "cuda" else [])
    words = plan(*steps, workspace=64, zero=64)
    rig.launch(words, device=1)
    rig.fail(name)
    with pytest.raises(native.NativeError, match=rf"failed with error 700 \(fake {kind} error 700\)") as caught:
        rig.launch(words, device=1)
    assert caught.value.status == 700


@pytest.mark.parametrize(
    "image, symbol, shared",
    [(b"", "kernel", 0), (IMAGE, "", 0), (IMAGE, "kernel", -1)],
    ids=["image", "symbol", "shared"],
)
def test_a_load_without_its_parts_is_refused(rig, image, symbol, shared):
    with pytest.raises(native.NativeError, match="a kernel needs an image, its size, a symbol and shared memory"):
        rig.load(image=image, symbol=symbol, shared=shared)


# ---- malformed plans ------------------------------------------------------------------------------------------------


def full_plan(handle):
    params = [(0, 0), (5, 1), tiled(), (6, 2), im2col(), (8, 0), (7, 0)]
    return plan(step(handle, *params), step(handle, (3, 0), cluster=2), workspace=1024, zero=64)


def test_a_plan_cut_anywhere_is_refused(rig):
    words = full_plan(rig.load())
    rig.launch(words)
    for length in range(len(words)):
        with pytest.raises(native.NativeError, match="the plan|tensor map"):
            rig.launch(words[:length])
        assert rig.log() == []


def test_words_after_the_plan_are_refused(rig):
    with pytest.raises(native.NativeError, match="2 words after its last step"):
        rig.launch(plan(step(rig.load())) + [0, 0])


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([0x41435032, 6, 0, 0, 0, 0], "begins with 0x41435032, expected 0x41435031"),
        (plan(sizes=[1] * 17, strides=[1] * 17), "its output rank, is 17: expected 0..16"),
        (plan(sizes=[-1], strides=[1]), "its output size, is -1"),
        (plan(workspace=8, zero=9), "its zeroed workspace size, is 9: expected 0..8"),
        (plan(step(0)), "kernel handle 0, and none is loaded"),
        (plan(step(2)), "kernel handle 2, and none is loaded"),
        (plan(step(1, grid=(1, 65536, 1))), "its grid, is 65536: expected 0..65535"),
        (plan(step(1, grid=(2**30, 1, 1), cluster=8)), "clusters of 8 is over 2147483647 blocks"),
        (plan(step(1, threads=1025)), "its thread count, is 1025"),
        (plan(step(1, cluster=9)), "its cluster size, is 9: expected 1..8"),
        (plan(step(1, (10, 0))), "its parameter kind, is 10"),
        (plan(step(1, (0, -8))), "its pointer offset, is -8"),
        (plan(step(1, (5, 2**32))), "its 32-bit parameter, is 4294967296"),
        (plan(step(1, *[(6, 0)] * 513)), "parameters need more than 4096 bytes"),
        (plan(step(1, tiled(dims=(64,) * 6, strides=(128,) * 5, box=(1,) * 6))), "its tensor map rank, is 6"),
        (plan(step(1, tiled(slot=5))), "its tensor map slot, is 5"),
        (plan(step(1, tiled(dtype=13))), "its tensor map dtype, is 13"),
        (plan(step(1, (9, 16, *tiled()[2:], 0))), "recipe has 16 words where its rank needs 15"),
    ],
)
def test_a_malformed_plan_is_refused_with_what_is_wrong(rig, words, sentence):
    rig.load()
    with pytest.raises(native.NativeError, match=re.escape(sentence)):
        rig.launch(words)
    assert rig.log() == []


def test_random_words_are_refused_without_harm(rig):
    handle, dice = rig.load(), random.Random(7)
    sound = full_plan(handle)
    for _ in range(20000):
        words = list(sound)
        for _ in range(dice.randint(1, 4)):
            words[dice.randrange(len(words))] = dice.choice([-1, 0, 1, 2, 9, 5000, 2**31, 2**63 - 1, -(2**63)])
        try:
            rig.native.launch(words, 0, STREAM, (A, B, C, OUT, WORKSPACE))
        except native.NativeError as refused:
            assert "the plan" in str(refused) or "tensor map" in str(refused) or "parameters" in str(refused)
        rig.fake.fake_clear()


# ---- the memo -------------------------------------------------------------------------------------------------------


class Counter:
    """A planner that answers the same to all and remembers what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def __call__(self, key):
        self.asked.append(key)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_plan_is_asked_for_once(rig):
    planner = Counter(plan())
    rig.native.set_planner(planner)
    assert [rig.native.probe([1, 2, 3]) for _ in range(3)] == [True, True, True]
    assert planner.asked == [[1, 2, 3]]
    assert rig.native.memo_stats() == {"size": 1, "hits": 2, "misses": 1, "evictions": 0}


def test_every_word_and_the_length_are_part_of_the_key(rig):
    planner = Counter(plan())
    rig.native.set_planner(planner)
    keys = [[], [0], [0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [2**63 - 1], [-(2**63)]]
    for key in keys * 2:
        rig.native.probe(key)
    assert planner.asked == keys


def test_aten_is_remembered_and_aten_this_time_is_not(rig):
    for answer, asked in ((None, 1), (False, 2)):
        planner = Counter(answer)
        rig.native.memo_clear()
        rig.native.set_planner(planner)
        assert [rig.native.probe([5]), rig.native.probe([5])] == [False, False]
        assert len(planner.asked) == asked
    assert rig.reports == []


def test_an_exception_in_the_planner_is_reported_and_not_remembered(rig):
    planner = Counter(ValueError("no such variant"))
    rig.native.set_planner(planner)
    assert [rig.native.probe([5]), rig.native.probe([5])] == [False, False]
    assert len(planner.asked) == 2
    assert rig.reports == ["planning failed with ValueError: no such variant; aten serves this call"] * 2


def test_a_malformed_plan_is_reported_once_and_aten_remembered(rig):
    planner = Counter(plan(step(3)))
    rig.native.set_planner(planner)
    assert [rig.native.probe([5]), rig.native.probe([5])] == [False, False]
    assert len(planner.asked) == 1
    assert rig.reports == ["the plan names kernel handle 3, and none is loaded under it: load the kernel first"]


def test_a_plan_too_long_is_reported(rig):
    rig.native.set_planner(Counter([0] * 4097))
    assert not rig.native.probe([5])
    assert "the plan has 4097 words, expected at most 4096" in rig.reports[0]


def test_without_a_planner_nothing_is_remembered(rig):
    assert not rig.native.probe([1])
    assert rig.native.memo_stats()["size"] == 0


def test_the_least_recently_used_goes_first(rig):
    planner = Counter(plan())
    rig.native.set_planner(planner)
    rig.native.memo_limit(3)
    for key in (1, 2, 3, 1, 4):  # 2 is the oldest when 4 comes
        rig.native.probe([key])
    assert rig.native.memo_stats() == {"size": 3, "hits": 1, "misses": 4, "evictions": 1}
    planner.asked.clear()
    for key in (1, 3, 4, 2):
        rig.native.probe([key])
    assert planner.asked == [[2]]


def test_a_smaller_limit_evicts_at_once_and_clear_empties(rig):
    rig.native.set_planner(Counter(plan()))
    for key in range(10):
        rig.native.probe([key])
    rig.native.memo_limit(4)
    assert rig.native.memo_stats()["size"] == 4
    rig.native.memo_clear()
    assert rig.native.memo_stats() == {"size": 0, "hits": 0, "misses": 10, "evictions": 6}


def test_a_plan_made_before_a_clear_is_not_remembered_after_it(rig):
    def planner(key):
        rig.native.memo_clear()
        return plan()

    rig.native.set_planner(planner)
    assert rig.native.probe([1])
    assert rig.native.memo_stats()["size"] == 0


def test_the_planner_may_call_back_into_the_launcher(rig):
    def planner(key):
        return plan(step(rig.load())) if key == [1] and rig.native.probe([2]) else plan()

    rig.native.set_planner(planner)
    assert rig.native.probe([1])
    assert rig.native.memo_stats()["size"] == 2


def use_c_planner(rig):
    rig.native.lib.aotconv_set_planner(ctypes.cast(rig.fake.fake_planner, native._Planner))


def hammer(rig, first, count, distinct, words=46):
    probe = ctypes.cast(rig.native.lib.aotconv_probe, ctypes.c_void_p)
    number = ctypes.c_int64
    return rig.fake.fake_hammer(probe, number(first), number(count), number(distinct), words)


def test_eight_threads_of_ten_thousand_problems_stay_bounded(rig, capsys):
    use_c_planner(rig)
    times = []

    def work(thread):
        times.append(hammer(rig, thread * 10000, 10000, 10000))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    each = (time.perf_counter() - begun) / 80000 * 1e9
    assert len(times) == 8 and min(times) > 0
    stats = rig.native.memo_stats()
    assert stats == {"size": 4096, "hits": 0, "misses": 80000, "evictions": 80000 - 4096}
    with capsys.disabled():
        print(f"\n  memo, 8 threads, keys of 46 words: {each:.0f} ns a miss", end="")


def test_a_hit_is_cheap(rig, capsys):
    use_c_planner(rig)
    miss = hammer(rig, 0, 1000, 1000)
    times = [hammer(rig, 0, 200000, distinct) for distinct in (1, 100, 1000)]
    with capsys.disabled():
        hits = ", ".join(f"{nanoseconds:.0f}" for nanoseconds in times)
        print(f"\n  memo, 1 thread: {miss:.0f} ns a miss; {hits} ns a hit among 1, 100, 1000 problems", end="")
    assert min(times) < 1000  # some 70 on an idle machine


def test_many_threads_through_a_python_planner(rig):
    rig.native.set_planner(lambda key: plan() if key[0] % 2 else None)
    wrong = []

    def work(seed):
        dice = random.Random(seed)
        for _ in range(500):
            key = dice.randrange(50)
            if rig.native.probe([key]) != bool(key % 2):
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == [] and rig.native.memo_stats()["size"] == 50


# ---- with torch -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def torch_native(built):
    return native.load(built / "launcher.so")


def test_cpu_tensors_are_atens(torch_native):
    import torch

    x, w = torch.ones(1, 2, 3, 3), torch.ones(2, 2, 1, 1)
    for bias in (None, torch.ones(2)):
        assert torch.ops.aotconv._run(x, w, bias, 1, 2, 3, 4, -5) is None
        assert torch.ops.aotconv._run(x.requires_grad_(), w, bias, 1, 2, 3, 4, -5) is None


def test_the_operator_frees_what_it_is_given(torch_native):
    import gc

    import torch

    x = torch.ones(4)
    storage_uses = torch._C._storage_Use_Count(x.untyped_storage()._cdata)
    for _ in range(100):
        torch.ops.aotconv._run(x, x, x, 0, 0, 0, 0, 0)
    gc.collect()
    assert torch._C._storage_Use_Count(x.untyped_storage()._cdata) == storage_uses


def test_autograd_passes_the_operator_by(torch_native):
    import torch

    table = torch._C._dispatch_dump_table("aotconv::_run")
    for key in ("AutogradCUDA", "AutogradCPU", "ADInplaceOrView", "AutocastCUDA"):
        assert re.search(rf"^{key}: fallthrough", table, re.M), key


def test_loading_again_is_free_and_a_second_copy_is_refused(torch_native, built, tmp_path):
    native.load(built / "launcher.so")
    with pytest.raises(native.NativeError, match="torch refused the operator aotconv::_run"):
        native.load(shutil.copy(built / "launcher.so", tmp_path / "second.so"))


def test_a_file_that_is_no_launcher_is_one_sentence(tmp_path):
    for path in (tmp_path / "absent.so", "libm.so.6"):
        with pytest.raises(native.NativeError, match="cannot be loaded .* install aotconv's wheel again"):
            native.Native(path)


def test_without_torch_registration_says_so(built):
    script = f"import sys; from aotconv import native; n = native.Native({str(built / 'launcher.so')!r})\n"
    script += "assert 'torch' not in sys.modules\ntry: n.register()\nexcept native.NativeError as e: print(e)"
    root = HERE.parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "libtorch_cpu.so is not loaded in this process: import torch first"


# ---- the operator on GPU tensors, with a torch and a driver that are not there --------------------------------------

PRELUDE = """
import ctypes
from aotconv import native

class Tensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int32), ("type", ctypes.c_int32), ("device", ctypes.c_int32),
                ("ndim", ctypes.c_int64), ("sizes", ctypes.c_int64 * 16), ("strides", ctypes.c_int64 * 16),
                ("data", ctypes.c_void_p)]

def tensor(sizes, strides, data, dtype=6, type=1, device=0):
    return Tensor(dtype, type, device, len(sizes), (ctypes.c_int64 * 16)(*sizes), (ctypes.c_int64 * 16)(*strides), data)

folder = FOLDER
torch = ctypes.CDLL(folder + "/libtorch_cpu.so")
torch.fake_allocated.restype, torch.fake_time.restype = ctypes.POINTER(Tensor), ctypes.c_double
torch.fake_schema.restype = ctypes.c_char_p
stream_owner = ctypes.CDLL(folder + "/libtorch_cuda.so")
driver = ctypes.CDLL(folder + "/fake.so")
driver.fake_log.restype = ctypes.c_char_p
launcher = native.Native(folder + "/launcher.so")
launcher.register()
launcher.open_driver("cuda", folder + "/fake.so")
reports, asked, answers = [], [], []
launcher.set_report(reports.append)

def planner(key):
    asked.append(key)
    return answers[-1]

launcher.set_planner(planner)
image = b"image"
handles = [launcher.load_kernel(device, image, "kernel") for device in (0, 1)]
x, w, bias = tensor((2, 3), (3, 1), 0x1000), tensor((4,), (1,), 0x2008, dtype=5), tensor((1,), (1,), 0x3001)
scalars = (ctypes.c_int64 * 5)(1, 2, 3, 4, -5)

def plan(handle, workspace=0, zero=0, count=1, slots=(0, 1, 2, 3, 4)):
    step = [handle, 7, 1, 1, 128, 0, 1, len(slots)] + [word for slot in slots for word in (slot, 0)]
    return [native.PLAN_MAGIC, 6, 2, 2, 5, 5, 1, workspace, zero, count] + step * count

def call(a=x, b=w, c=bias, type=1):
    # The result or None, and what the driver was asked.
    driver.fake_layout((ctypes.c_int * 5)(8, 8, 8, 8, 8), 5)
    driver.fake_clear()
    result = Tensor()
    reference = [ctypes.byref(t) if t else None for t in (a, b, c)]
    there = torch.fake_call(type, *reference, scalars, ctypes.byref(result))
    assert torch.fake_live() == 0, torch.fake_live()
    return (result if there else None), driver.fake_log().decode().splitlines()

def hexes(*values):
    return ",".join(value.to_bytes(8, "little").hex() for value in values)
"""


def gpu_script(built, body):
    """Runs in a process of its own, where no real torch is loaded."""
    script = PRELUDE.replace("FOLDER", repr(str(built))) + body
    root = HERE.parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_key_has_all_that_a_plan_depends_on(built):
    gpu_script(
        built,
        """
answers.append(None)
assert call() == (None, [])
assert call(c=None) == (None, [])
a, b, c = [6, 2, 16, 2, 3, 3, 1], [5, 1, 8, 4, 1], [6, 1, 1, 1, 1]
assert asked == [[1, 2, 3, 4, -5, 0, 7] + a + b + c, [1, 2, 3, 4, -5, 0, 3] + a + b]
call(); call(c=None)
assert len(asked) == 2 and reports == []
""",
    )


def test_the_operator_allocates_launches_and_frees(built):
    gpu_script(
        built,
        """
answers.append(plan(handles[0], workspace=1000, zero=24))
for _ in range(3):
    torch.fake_forget()
    result, lines = call()
    assert [line for line in lines if not line.startswith(("push", "pop", "cuDevice"))] == [
        "cuMemsetD8Async at=0x901000 value=0 count=24 stream=0x700",
        "cuLaunchKernel grid=7,1,1 block=128,1,1 shared=0 stream=0x700 params="
        + hexes(0x1000, 0x2008, 0x3001, 0x900000, 0x901000),
    ]
    assert (result.dtype, result.type, result.device, result.ndim) == (6, 1, 0, 2)
    assert list(result.sizes[:2]) == [2, 5] and list(result.strides[:2]) == [5, 1] and result.data == 0x900000
    workspace = torch.fake_allocated(1).contents
    assert (workspace.dtype, workspace.ndim, workspace.sizes[0], workspace.strides[0]) == (0, 1, 1000, 1)
assert len(asked) == 1 and torch.fake_allocations() == 2 and reports == []
result, lines = call(c=None)
assert hexes(0x1000, 0x2008, 0) in lines[-2]
""",
    )


def test_each_device_has_its_own_plan_and_stream(built):
    gpu_script(
        built,
        """
answers.append(plan(handles[1]))
x, w, bias = (tensor(list(t.sizes[:t.ndim]), list(t.strides[:t.ndim]), t.data, device=1) for t in (x, w, bias))
result, lines = call(x, w, bias)
assert result.device == 1 and "stream=0x701" in lines[1] and lines[0] == "push 0x1001" and lines[2] == "pop 0x1001"
assert asked[0][5] == 1
""",
    )


def test_tensors_that_do_not_belong_together_are_atens(built):
    gpu_script(
        built,
        """
answers.append(plan(handles[0]))
elsewhere, on_cpu = tensor((4,), (1,), 0x2000, device=1), tensor((4,), (1,), 0x2000, type=0)
deep = tensor((1,) * 16, (1,) * 16, 0x2000)
wrong = [(elsewhere, w, bias), (x, elsewhere, bias), (x, w, elsewhere), (on_cpu, w, None), (x, on_cpu, None)]
wrong += [(x, w, on_cpu), (deep, deep, None)]
for a, b, c in wrong:
    assert call(a, b, c) == (None, [])
assert call(on_cpu, on_cpu, on_cpu, type=0) == (None, [])
assert asked == [] and reports == []
""",
    )


def test_a_failed_allocation_is_atens_this_time(built):
    gpu_script(
        built,
        """
answers.append(plan(handles[0], workspace=1000))
for left, sentence in ((0, "the output (rank 2, dtype 6)"), (1, "a workspace of 1000 bytes")):
    torch.fake_allocations_left(left)
    assert call() == (None, [])
    assert reports.pop() == sentence + " cannot be allocated on device 0: aten serves this call"
torch.fake_allocations_left(-1)
assert call()[0] and len(asked) == 1
""",
    )


def test_a_failed_launch_is_atens_from_then_on(built):
    gpu_script(
        built,
        """
answers.append(plan(handles[0]))
driver.fake_fail(b"cuLaunchKernel", 719)
assert call()[0] is None
driver.fake_fail(b"", 0)
assert call() == (None, [])
assert reports == ["cuLaunchKernel failed with error 719 (fake cuda error 719)"] and len(asked) == 1
launcher.memo_clear()
assert call()[0] and len(asked) == 2
""",
    )


def test_an_empty_result_launches_nothing_and_needs_no_workspace(built):
    gpu_script(
        built,
        """
words = plan(handles[0], workspace=1000, zero=1000)
words[words.index(7)] = 0
words[3] = 0
answers.append(words)
result, lines = call()
assert result.sizes[0] == 0 and lines == [] and torch.fake_allocations() == 1
""",
    )


def test_the_operators_own_time_is_small(built, capsys):
    out = gpu_script(
        built,
        """
big = [tensor((32, 128, 28, 28), (100352, 1, 3584, 128), 0x1000 * i) for i in (1, 2, 3)]
answers.append([native.PLAN_MAGIC, 6, 2, 2, 5, 5, 1, 0, 0, 0])
references = [ctypes.byref(t) for t in big]
print(min(torch.fake_time(100000, *references, scalars) for _ in range(5)))
""",
    )
    with capsys.disabled():
        print(f"\n  operator, all but torch's allocator and the driver: {float(out):.0f} ns a call", end="")
    assert float(out) < 5000  # some 400 on an idle machine; CI machines are busy


# ---- the binary -----------------------------------------------------------------------------------------------------


def torch_functions():
    source = (build.SOURCE.parent / "torch_shim.h").read_text()
    return set(re.findall(r"^  X\((\w+)\)", source, re.M))


def declared_by_2_10(header: Path) -> set[str]:
    """The functions a shim header declares outside of blocks that need a torch newer than 2.10."""
    names, guards = set(), []
    for line in header.read_text().splitlines():
        if re.match(r"\s*#\s*if", line):
            newer = re.search(r"TORCH_FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)", line)
            guards.append(bool(newer) and (int(newer[1]), int(newer[2])) > (2, 10) or "USE_CUDA" in line)
        elif re.match(r"\s*#\s*endif", line):
            guards.pop()
        elif not any(guards):
            names.update(re.findall(r"\b((?:aoti_)?torch_\w+)\(", line))
    return names


def test_the_launcher_uses_only_what_torch_2_10_has():
    include = build.torch_include() / "torch" / "csrc"
    known = declared_by_2_10(include / "inductor" / "aoti_torch" / "c" / "shim.h")
    known |= declared_by_2_10(include / "stable" / "c" / "shim.h")
    assert "torch_library_impl" in known and "torch_from_blob" not in known
    assert torch_functions() and torch_functions() <= known
    sources = "".join(path.read_text() for path in build.sources())
    assert set(re.findall(r"libtorch\.((?:aoti_)?torch_\w+)\(", sources)) == torch_functions()


def test_a_newer_torch_function_would_not_compile(tmp_path):
    source = tmp_path / "newer.cpp"
    source.write_text("#include <torch/csrc/stable/c/shim.h>\nauto* newer = &torch_from_blob;\n")
    command = build.compile_command(tmp_path / "out.so", build.torch_include())
    command[command.index(str(build.SOURCE))] = str(source)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode and "torch_from_blob" in done.stderr


def test_the_binary_needs_glibc_alone(built):
    listing = subprocess.run(["nm", "-D", built / "launcher.so"], capture_output=True, text=True, check=True).stdout
    undefined = [line.split()[-1] for line in listing.splitlines() if " U " in line]
    defined = [line.split()[-1] for line in listing.splitlines() if " U " not in line and " w " not in line]
    assert undefined and all("@GLIBC_" in name for name in undefined)
    assert set(defined) == set(native._SIGNATURES)


def test_the_glibc_floor_is_read_from_the_binary(built):
    command = ["objdump", "-T", built / "launcher.so"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seen = {(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", listing)}
    assert build.glibc_floor(built / "launcher.so") == max(seen)
    assert max(seen) <= (2, 28), "torch's own wheels ask for 2.28"


def test_the_floor_of_something_else_is_refused(tmp_path):
    (tmp_path / "text").write_text("hello, world")
    with pytest.raises(RuntimeError, match="expected a 64-bit little-endian ELF"):
        build.glibc_floor(tmp_path / "text")


def test_the_launcher_is_the_same_from_anywhere(built, tmp_path):
    out = tmp_path / "elsewhere" / "launcher.so"
    out.parent.mkdir()
    subprocess.run(build.compile_command(out, build.torch_include()), check=True, cwd=tmp_path)
    data = out.read_bytes()
    assert data == (built / "launcher.so").read_bytes()
    for path in (build.ROOT, build.torch_include(), tmp_path):
        assert str(path).encode() not in data


def test_every_entry_is_bound_and_every_binding_exists():
    exported = set(re.findall(r"^AOTCONV_API \w+ (\w+)\(", build.SOURCE.read_text(), re.M))
    assert exported == set(native._SIGNATURES)
