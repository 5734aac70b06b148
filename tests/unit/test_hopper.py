"""The Hopper family: the words of its tensor maps, how it cuts problems up, and what it refuses."""

from dataclasses import replace

import pytest

from aotconv import families, hopper
from aotconv.pack import Argument, Artifact
from aotconv.plan import KIND_I32, KIND_I64, KIND_NULL, KIND_TENSOR_MAP, WORKSPACE
from aotconv.problem import DIMS, Layout, forward_problem, pitch
from aotconv.select import Candidate
from gen.cases import cases
from gen.cases_hopper import gradient, with_fewer_windows
from gen.matrix import Entry
from gen.structure import constraints
from gen.variants import Kernel, parse_variant

SLOTS = {"x": 0, "w": 1, "b": 2, "y": 3}
BF16, TILED, IM2COL, SWIZZLE, PROMOTION, FILL = 9, 0, 1, 3, 2, 0


def artifact(layout="coop", rank=2, m=128, n=128, maps="im2col", op="fwd") -> Artifact:
    """An artifact as the compile worker describes it, with few of the kernel's arguments."""
    x_rank = rank + 2 if maps == "im2col" else 2
    unread = lambda name, count: (*(Argument(f"{name}_size{i}", "unread32") for i in range(count)),
                                  *(Argument(f"{name}_stride{i}", "unread64") for i in range(count)))
    arguments = (
        Argument("x_map", maps), *unread("x_map", x_rank), Argument("w_map", "tiled"), *unread("w_map", 3),
        Argument("y_map", "tiled"), *unread("y_map", 2), Argument("b_ptr", "ptr"), Argument("partial_ptr", "ptr", 16),
        Argument("count_ptr", "ptr", 16), Argument("C_out", "i32"), Argument("splits", "i32"), Argument("global_scratch", "scratch"),
    )
    maps_of = [{"name": "x_map", "box": [m, 64], "swizzle": SWIZZLE}, {"name": "w_map", "box": [64, 1, 64], "swizzle": SWIZZLE},
               {"name": "y_map", "box": [m, 64], "swizzle": SWIZZLE}]
    kernel = Kernel(op, rank, layout).name
    return Artifact(f"{kernel}-bf16-m{m}n{n}k64c64w8s4", kernel, "bf16", {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64}, kernel,
                    12, 384, 200_000, 1, 0, 168, 0, arguments, "00", descriptors=tuple(maps_of))


def recipe_of(name: str, problem, **kind) -> list[int]:
    a = artifact(op=problem.op, **kind)
    return hopper.recipe(next(d for d in a.descriptors if d["name"] == name), a, problem, SLOTS)


# 2 images of 13 x 11 pixels and 24 channels, 40 channels out, kernel 3 x 5, stride 2 x 3, padding 1 x 2.
PROBLEM = forward_problem((2, 24, 13, 11), (40, 24, 3, 5), "bf16", (2, 3), (1, 2))


def test_im2col_recipe():
    dims, strides = [24, 11, 13, 2], [48, 528, 6864]
    lower, upper = [-2, -1], [3 * 3 + 1 - 11 - 2, 6 * 2 + 1 - 13 - 1]
    assert PROBLEM.y.sizes == (2, 40, 7, 4)
    assert recipe_of("x_map", PROBLEM) == [
        0, 0, IM2COL, BF16, 4, *dims, *strides, *lower, *upper, 64, 128, 1, 3, 2, 1, SWIZZLE, PROMOTION, FILL]


def test_weights_recipe_keeps_taps_apart():
    """A step past the last of 24 channels must read zeros, so taps are a dimension of their own."""
    assert recipe_of("w_map", PROBLEM) == [
        1, 0, TILED, BF16, 3, 24, 15, 40, 48, 720, 64, 1, 64, 1, 1, 1, SWIZZLE, PROMOTION, FILL]


def test_output_recipe():
    assert recipe_of("y_map", PROBLEM) == [3, 0, TILED, BF16, 2, 40, 56, 80, 64, 128, 1, 1, SWIZZLE, PROMOTION, FILL]


def test_matrix_recipe_of_one_tap():
    p = forward_problem((2, 24, 13, 11), (40, 24, 1, 1), "bf16")
    assert recipe_of("x_map", p, layout="coopt", maps="tiled") == [
        0, 0, TILED, BF16, 2, 24, 286, 48, 64, 128, 1, 1, SWIZZLE, PROMOTION, FILL]


@pytest.mark.parametrize("rank, corner", [(1, ([-2], [-2])), (3, ([-2, -2, -2], [-2, -2, -2]))])
def test_corners_of_other_ranks(rank, corner):
    p = forward_problem((1, 8, *[6] * rank), (8, 8, *[5] * rank), "bf16", 1, 2)
    assert hopper.corners(p) == corner


def test_dimension_of_one_gets_a_stride_that_is_allowed():
    p = forward_problem((1, 24, 1, 11), (40, 24, 1, 3), "bf16", 1, (0, 1))
    assert recipe_of("x_map", p)[5:12] == [24, 11, 1, 1, 48, 528, 528]


def test_step_words():
    """Maps with their recipe, unread sizes and strides as zeros, an absent bias null, counters before partial sums."""
    p = forward_problem((1, 512, 7, 7), (512, 512, 3, 3), "bf16", 1, 1)
    (step,), workspace, zeroed = hopper.launch(artifact(), p, 77, {"x": 0, "w": 1, "y": 3}, splits=3)
    assert step[:8] == [77, 12, 1, 1, 384, 200_000, 1, len(artifact().arguments)]
    assert step[8:10] == [KIND_TENSOR_MAP, 25] and step[10:12] == [0, 0]
    after_x = 10 + step[9]
    assert step[after_x : after_x + 16] == [KIND_I32, 0] * 4 + [KIND_I64, 0] * 4
    assert step[-12:] == [KIND_NULL, 0, WORKSPACE, 256, WORKSPACE, 0, KIND_I32, 512, KIND_I32, 3, KIND_NULL, 0]
    assert (workspace, zeroed) == (256 + 12 * 128 * 128 * 4, 256)


def test_grid_of_few_programs():
    p = forward_problem((32, 128, 28, 28), (128, 128, 3, 3), "bf16", 1, 1)
    grid = lambda layout, **how: hopper.launch(artifact(layout), p, 1, SLOTS, **how)[0][0][1]
    assert (grid("pp"), grid("pp", cap=3), grid("coop", cap=1)) == (132, 3, 1)
    assert grid("pipe") == grid("pipe", cap=3) == 196


def test_grid_follows_the_device():
    p = forward_problem((32, 128, 28, 28), (128, 128, 3, 3), "bf16", 1, 1)
    assert [families.launch(artifact("pp"), p, 1, SLOTS, count)[0][0][1] for count in (114, 78)] == [114, 78]


@pytest.mark.parametrize("layout, split", [("pipe", False), ("pp", False), ("coop", True)])
def test_only_coop_splits(layout, split):
    a = artifact(layout)
    shape = hopper.shape_of(forward_problem((2, 1280, 16, 16), (1280, 1280, 3, 3), "bf16", 1, 1))
    assert (hopper.work(hopper.prepare(a), shape, 132).splits > 1) == split


def test_no_split_of_a_short_reduction():
    shape = hopper.shape_of(forward_problem((1, 64, 8, 8), (64, 64, 1, 1), "bf16"))
    assert hopper.work(hopper.prepare(artifact()), shape, 132).splits == 1


@pytest.mark.parametrize("sizes, strides, found", [
    ((2, 3, 4), (12 * 8, 4 * 8, 8), 8), ((2, 3, 4), (12 * 8, 5 * 8, 8), -1), ((2, 1, 4), (32, 7, 8), 8), ((1, 1), (5, 5), 0),
    ((2, 1, 1), (24, 9, 9), 24), ((2, 3), (0, 8), -1),
])
def test_pitch(sizes, strides, found):
    assert pitch(sizes, strides) == found


# --- the gradient of the input at stride 1: a forward convolution over y ------------------------------------------------

# 2 images of 13 x 11 pixels and 24 channels, 40 channels out, kernel 3 x 5 dilated by 2 x 1, padding 5 x 1: windows over
# y (19 x 9) start a row inside it, since the padding is more than they reach, and 3 columns before it.
GRADIENT = gradient(forward_problem((2, 24, 13, 11), (40, 24, 3, 5), "bf16", 1, (5, 1), (2, 1), bias=True))


def test_gradient_gathers_y():
    dims, strides = [40, 9, 19, 2], [80, 720, 13680]
    lower, upper = [-3, 1], [-1, -5]
    assert GRADIENT.y.sizes == (2, 40, 19, 9)
    assert recipe_of("x_map", GRADIENT) == [
        3, 0, IM2COL, BF16, 4, *dims, *strides, *lower, *upper, 64, 128, 1, 1, 1, 1, SWIZZLE, PROMOTION, FILL]


def test_gradient_reads_forward_weights_and_writes_x():
    assert recipe_of("w_map", GRADIENT)[:10] == [1, 0, TILED, BF16, 3, 24, 15, 40, 48, 720]
    assert recipe_of("y_map", GRADIENT)[:8] == [0, 0, TILED, BF16, 2, 24, 286, 48]


def test_gradient_of_one_tap_reads_a_matrix():
    p = gradient(forward_problem((2, 24, 13, 11), (40, 24, 1, 1), "bf16"))
    assert recipe_of("x_map", p, layout="coopt", maps="tiled")[:8] == [3, 0, TILED, BF16, 2, 40, 286, 80]


def test_gradient_by_the_kernels_names():
    v = hopper.kernel_values(GRADIENT)
    assert [v[name] for name in ("C_out", "out_h", "out_w", "pad_h", "pad_w", "stride_h", "dil_h", "kernel_w")] == [24, 13, 11, -1, 3, 1, 2, 5]
    assert hopper.shape_of(GRADIENT)[:4] == (286, 24, 40, 15)
    (step,), _, _ = hopper.launch(artifact(op="bwd_input"), GRADIENT, 77, SLOTS)
    assert step[1] == 3 and step[-6:] == [KIND_I32, 24, KIND_I32, 1, KIND_NULL, 0]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradient_is_what_the_kernels_compute(rank):
    """Every position plus a tap's offset, from the corner that the loads get; zeros outside, taps of w mirrored."""
    torch = pytest.importorskip("torch")
    from gen.reference import convolve

    for p in cases("bwd_input", rank, "pipe", 0, "i32", "bf16"):
        if p.flops > 3e7:
            continue
        generator = torch.Generator().manual_seed(1)
        w, y = (torch.randn(t.sizes, generator=generator, dtype=torch.float64) for t in (p.w, p.y))
        assert torch.allclose(as_forward(torch, p, w, y), convolve("bwd_input", p, w=w, y=y))


def as_forward(torch, p, w, y):
    v, dims, far = hopper.kernel_values(p), DIMS[p.rank], 12
    grown = torch.nn.functional.pad(y, [far] * 2 * p.rank)
    x, w = torch.zeros(p.x.sizes, dtype=torch.float64), w.flatten(2)
    for tap, at in enumerate(torch.cartesian_prod(*(torch.arange(v[f"kernel_{d}"]) for d in dims)).reshape(-1, p.rank).tolist()):
        starts = [far - v[f"pad_{d}"] + k * v[f"dil_{d}"] for d, k in zip(dims, at)]
        window = grown[(..., *(slice(s, s + v[f"out_{d}"]) for d, s in zip(dims, starts)))]
        x += torch.einsum("no...,oc->nc...", window, w[:, :, v["taps"] - 1 - tap])
    return x


# --- what is refused -------------------------------------------------------------------------------------------------


def refusal(problem, maps="im2col", rank=2) -> str | None:
    layout = "pipe" if maps == "im2col" else "pipet"
    kernel = Kernel(problem.op, rank, layout)
    entry = Entry("fwd_hopper_pipe", (kernel,), (), (), (), (), ("sm_90a",), maps)
    return Candidate(kernel.name, hopper, tuple(constraints(kernel, entry)), (), True, []).refusal(problem)


def conv(x=(2, 64, 16, 16), w=(64, 64, 3, 3), stride=1, padding=1, dilation=1, **more):
    return forward_problem(x, w, "bf16", stride, padding, dilation, **more)


@pytest.mark.parametrize("problem", [
    conv(), conv(stride=8), conv(x=(2, 64, 300, 300), padding=127), conv(x=(1, 8, 300, 300), w=(8, 8, 2, 2), dilation=125),
    conv(w=(8, 64, 3, 3), x=(2, 64, 1, 1)), conv(bias=True),
])
def test_taken(problem):
    assert refusal(problem) is None


@pytest.mark.parametrize("problem, reason", [
    (conv(stride=9), "stride = 9, must be <= 8"),
    (conv(x=(2, 64, 300, 300), padding=129), "corner = 129, must be <= 128"),
    (conv(x=(1, 8, 600, 600), w=(8, 8, 3, 3), dilation=128, padding=0), "corner = 256, must be <= 128"),
    (conv(x=(1, 8, 600, 600), w=(8, 8, 3, 3), dilation=128, padding=128), "span = 256, must be <= 255"),
    (conv(x=(2, 4, 16, 16), w=(64, 4, 3, 3)), "w_o = 36, must be a multiple of 8"),
    (conv(w=(63, 64, 3, 3)), "y_pitch = 63, must be a multiple of 8"),
    (conv(w=(64, 32, 3, 3), groups=2), "groups = 2, must be == 1"),
    (conv(last=False), "y_pitch = -1, must be >= 0"),
    (replace(conv(), x=replace(conv().x, align=8)), "x_align = 8, must be a multiple of 16"),
    (replace(conv(), x=Layout((2, 64, 16, 16), (0, 1, 1024, 64))), "x_apart = 0, must be >= 1"),
])
def test_refused(problem, reason):
    assert refusal(problem) == reason


def test_limits_are_tighter_with_more_dimensions():
    at = lambda rank, padding: refusal(conv((1, 8, *[80] * rank), (8, 8, *[3] * rank), padding=padding), rank=rank)
    assert at(1, 1000) is None and at(3, 15) is None
    assert at(2, 129) == "corner = 129, must be <= 128" and at(3, 17) == "corner = 17, must be <= 16"


@pytest.mark.parametrize("problem, reason", [
    (conv(), "taps = 9, must be == 1"),
    (conv(w=(64, 64, 1, 1), padding=0, stride=2), "stride = 2, must be == 1"),
    (conv(w=(64, 64, 1, 1), padding=1), "pad = 1, must be == 0"),
    (replace(conv(w=(64, 64, 1, 1), padding=0), x=Layout((2, 64, 16, 16), (20480, 1, 1280, 64))), "x_pitch = -1, must be >= 0"),
])
def test_matrix_refused(problem, reason):
    assert refusal(problem, "tiled") == reason


@pytest.mark.parametrize("problem", [
    conv(), conv(padding=0), conv(x=(2, 64, 300, 300), padding=127), conv(x=(1, 8, 600, 600), w=(8, 8, 2, 2), dilation=128),
    conv(w=(8, 64, 3, 3), x=(2, 64, 1, 1)), conv(bias=True), with_fewer_windows(conv(dilation=2)),
])
def test_gradient_taken(problem):
    assert refusal(gradient(problem)) is None


@pytest.mark.parametrize("problem, reason", [
    (conv(stride=2), "stride = 2, must be == 1"),
    (conv(x=(2, 64, 300, 300), padding=129), "corner = 129, must be <= 128"),
    (conv(x=(2, 8, 20, 20), w=(8, 8, 1, 1), padding=128), "corner = 129, must be <= 128"),
    (conv(x=(1, 8, 600, 600), w=(8, 8, 2, 2), dilation=129, padding=0), "corner = 129, must be <= 128"),
    (conv(x=(1, 8, 600, 600), w=(8, 8, 3, 3), dilation=128, padding=128), "span = 256, must be <= 255"),
    (conv(x=(2, 4, 16, 16), w=(64, 4, 3, 3)), "w_o = 36, must be a multiple of 8"),
    (conv(w=(63, 64, 3, 3)), "y_w = 63, must be a multiple of 8"),
    (conv(w=(64, 32, 3, 3), groups=2), "groups = 2, must be == 1"),
    (replace(conv(), x=Layout((2, 64, 16, 16), (20480, 1, 1280, 64))), "x_pitch = -1, must be >= 0"),
    (replace(conv(), y=Layout((2, 64, 16, 16), (0, 1, 1024, 64))), "y_apart = 0, must be >= 1"),
])
def test_gradient_refused(problem, reason):
    assert refusal(gradient(problem)) == reason


def test_matrix_of_fewer_windows_is_refused():
    one = gradient(conv(w=(64, 64, 1, 1), padding=0, dilation=2))
    assert refusal(one, "tiled") is None
    assert refusal(with_fewer_windows(one), "tiled") == "corner = 2, must be == 1"


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("maps", ["im2col", "tiled"])
@pytest.mark.parametrize("op", ["fwd", "bwd_input"])
def test_admission_cases_are_taken(rank, maps, op):
    layout = "pipe" if maps == "im2col" else "pipet"
    problems = cases(op, rank, layout, 0, "i32", "bf16")
    assert {p.op for p in problems} == {op}
    assert len(problems) >= 9
    assert [reason for p in problems if (reason := refusal(p, maps, rank))] == []


def test_names():
    for name in ("fwd2d_coop-bf16-m64n64k64c64r128w4s6", "fwd2d_pps-f16-m256n64k64c64w4s4", "fwd3d_pipet-tf32-m128n128k32c32w8s5"):
        assert parse_variant(name).name == name
        assert hopper.schedule_of(name.split("-")[0]) in hopper.SCHEDULES
