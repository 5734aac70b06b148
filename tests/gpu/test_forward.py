"""Forward convolutions: right, laid out and refused as aten's. Numbers such as C16 are rows of the public cases."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F

import aotconv
from tools import VIEWS, channels_last, check, exact, integers, outcome, permuted, served

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SIZES = {1: ((2, 8, 13), (16, 8, 3)), 2: ((2, 8, 9, 7), (16, 8, 3, 3)), 3: ((2, 8, 4, 5, 6), (8, 8, 2, 3, 3))}


# ---- memory formats and views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", (1, 2, 3))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_view_of_input_and_weight(rank, dtype):
    x, w = (integers(*sizes, dtype=dtype) for sizes in SIZES[rank])
    for of_x, of_w in itertools.product(VIEWS, VIEWS):
        check(of_x(x), of_w(w), None, 1, 1)


@pytest.mark.parametrize("rank", (1, 2, 3))
def test_dimensions_of_size_one(rank):
    for bits in itertools.product((1, 4), repeat=rank + 2):
        x, w = integers(*bits), integers(8, bits[1], *(1,) * rank)
        for of_x, of_w in itertools.product((VIEWS[0], channels_last, permuted), repeat=2):
            check(of_x(x), of_w(w))


def test_expanded_input_weight_and_bias():
    x, w, b = integers(1, 8, 1, 7), integers(1, 8, 3, 3), integers(1)
    check(x.expand(3, 8, 9, 7), w.expand(16, 8, 3, 3), b.expand(16), 1, 1)


def test_expanded_channels():
    """Stride 0 is no unit stride."""
    for of_x, of_w in ((integers(1, 1, 1, 1), integers(16, 16, 3, 3)), (integers(2, 16, 9, 7), integers(1, 1, 1, 1)),
                       (integers(2, 1, 9, 7), integers(16, 1, 3, 3))):
        x, w = of_x.expand(2, 16, 9, 7), of_w.expand(16, 16, 3, 3)
        for a, b in ((x, w), (x, channels_last(w)), (channels_last(x), w)):
            check(a, b, None, 1, 1)


def test_overlapping_windows_as_input():
    frames = integers(200).unfold(0, 16, 4).unfold(0, 8, 2).permute(0, 2, 1)[:, :, None]
    assert frames.shape == (20, 8, 1, 16)
    check(frames, integers(8, 8, 1, 3))


def test_c16_channels_last_weight_of_one_input_channel():
    w = integers(6, 1, 3, 3).as_strided((6, 1, 3, 3), (9, 1, 3, 1))
    check(integers(1, 1, 10, 10), w, None, 1, 1)


def test_c21_permuted_one_channel_sequence():
    x = integers(2, 7, 1).permute(0, 2, 1)
    y = check(x, integers(4, 1, 3), None, 1, 1)
    faked = torch.compile(aotconv.conv1d, backend="aot_eager", fullgraph=True)(x, integers(4, 1, 3), None, 1, 1)
    assert faked.stride() == y.stride() and torch.equal(faked, y)


def test_c23_sliced_weight():
    check(torch.ones(3, 3, 2, 2, device="cuda").half(), integers(3, 3, 4, 4)[:, :, ::2, ::2])


def test_c27_misaligned_view():
    x = integers(513)[1:].view(1, 8, 8, 8)
    assert x.data_ptr() % 16 == 2
    check(x, integers(4, 8, 3, 3))
    last = integers(513)[1:].view(1, 8, 8, 8).permute(0, 3, 1, 2)
    check(last, channels_last(integers(8, 8, 3, 3)))


def test_negated_views():
    z = torch.complex(integers(2, 4, 6, 6, dtype=torch.float32), integers(2, 4, 6, 6, dtype=torch.float32, seed=1))
    x = z.conj().imag
    assert x.is_neg()
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert torch.equal(aotconv.conv2d(x, integers(4, 4, 3, 3, dtype=torch.float32)).cpu(),
                           exact(x.resolve_neg(), integers(4, 4, 3, 3, dtype=torch.float32)))


@pytest.mark.parametrize("seed", range(6))
def test_random_problems_and_views(seed):
    draw = random.Random(seed)
    for _ in range(40):
        check_random(draw)


def check_random(draw):
    rank, dtype = draw.choice((1, 2, 2, 3)), draw.choice(DTYPES)
    groups = draw.choice((1, 1, 1, 2, 3))
    inner, outer = draw.choice((1, 2, 3, 8, 16, 24)), draw.choice((1, 3, 8, 16, 33))
    kernel = [draw.randint(1, 3) for _ in range(rank)]
    dilation = [draw.randint(1, 2) for _ in range(rank)]
    spatial = [d * (k - 1) + draw.randint(1, 9) for k, d in zip(kernel, dilation)]
    rest = ([draw.randint(1, 3) for _ in range(rank)], [draw.randint(0, 3) for _ in range(rank)], dilation, groups)
    x = integers(draw.randint(1, 4), inner * groups, *spatial, dtype=dtype, most=1, seed=draw.randint(0, 99))
    w = integers(outer * groups, inner, *kernel, dtype=dtype, most=1, seed=draw.randint(0, 99))
    bias = integers(outer * groups, dtype=dtype) if draw.random() < 0.5 else None
    check(draw.choice(VIEWS)(x), draw.choice(VIEWS)(w), bias, *rest)


# ---- sizes ------------------------------------------------------------------------------------------------------------


def test_c31_groups_that_widen():
    x = torch.zeros(1, 4, 1, 1, device="cuda")
    x[0, 3] = 1
    assert aotconv.conv2d(x, torch.ones(16, 2, 1, 1, device="cuda"), groups=2).flatten().tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("memory", (VIEWS[0], channels_last))
def test_c33_channels_around_every_tile(memory):
    for inner, outer in itertools.product((1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 31, 33, 65), (1, 4, 17)):
        check(memory(integers(2, inner, 5, 6, most=1)), memory(integers(outer, inner, 3, 3, most=1)), integers(outer), 1, 1)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_c47_accumulates_in_float32(dtype):
    y = aotconv.conv2d(torch.ones(1, 4096, 1, 1, device="cuda", dtype=dtype), torch.ones(1, 4096, 1, 1, device="cuda", dtype=dtype))
    assert y.item() == 4096


def test_c51_reduction_of_588_between_nans():
    x = torch.full((2 * 3 * 20 * 20 + 64,), float("nan"), device="cuda").half()
    w = torch.full((5 * 3 * 14 * 14 + 64,), float("nan"), device="cuda").half()
    x, w = x[32:-32].view(2, 3, 20, 20), w[32:-32].view(5, 3, 14, 14)
    x.copy_(integers(2, 3, 20, 20, most=1)), w.copy_(integers(5, 3, 14, 14, most=1))
    check(x, w)
    check(channels_last(x), channels_last(w))


@pytest.mark.aten
def test_c12_empty_batch():
    w, b = integers(4, 3, 3, 3), integers(4)
    for x in (integers(0, 3, 5, 5), channels_last(integers(0, 3, 5, 5))):
        assert outcome(aotconv.conv2d, x, w, b) == outcome(F.conv2d, x, w, b)
        assert aotconv.conv2d(x, w, b).shape == (0, 4, 3, 3)


@pytest.mark.aten
def test_c14_no_input_channels():
    x, w, b = integers(3, 0, 16, 16), integers(8, 0, 3, 3), torch.arange(8, device="cuda").half()
    assert outcome(aotconv.conv2d, x, w, b, (2, 1)) == outcome(F.conv2d, x, w, b, (2, 1))


# ---- more than 2^31, 65,535 -------------------------------------------------------------------------------------------


@pytest.fixture
def clean():
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


def need(gigabytes):
    free, _ = torch.cuda.mem_get_info()
    if free < gigabytes * 2**30:
        pytest.skip(f"needs {gigabytes} GB of free GPU memory, {free / 2**30:.0f} are")


def test_c1_bytes_beyond_32_bits(clean):
    need(12)
    x, w = integers(1, 1, 1, 32768, 33000, dtype=torch.bfloat16, most=1), integers(1, 1, 1, 3, 3, dtype=torch.bfloat16)
    assert served(x, w) != "aten"
    y = aotconv.conv3d(x, w)
    assert torch.equal(y[..., -64:, :], F.conv3d(x[..., -66:, :].float(), w.float()).bfloat16())


def test_c3_pointwise_on_a_huge_image(clean):
    need(20)
    x = torch.empty(1, 128, 4096, 4097, device="cuda", dtype=torch.float16, memory_format=torch.channels_last)
    x.random_(-1, 2)
    w = integers(3, 128, 1, 1)
    assert served(x, w) != "aten"
    y = aotconv.conv2d(x, w)
    assert torch.equal(y[:, :, -1], torch.einsum("oc,ncw->now", w[:, :, 0, 0].float(), x[:, :, -1].float()).half())
    del y
    assert torch.equal(aotconv.conv2d(x, w, None, 2)[:, :, -1, -1], torch.einsum("oc,nc->no", w[:, :, 0, 0].float(), x[:, :, 4094, 4096].float()).half())


def test_c5_offsets_beyond_32_bits_in_a_small_tensor(clean):
    need(6)
    storage = torch.zeros(2**31 + 64, device="cuda", dtype=torch.float16)
    x = storage.as_strided((2, 1, 4, 4), (2**31 + 16, 16, 4, 1))
    x.copy_(integers(2, 1, 4, 4))
    w = integers(1, 1, 3, 3)
    assert served(x, w) == "generic"
    assert torch.equal(aotconv.conv2d(x, w), aotconv.conv2d(x.contiguous(), w))
    assert torch.equal(aotconv.conv2d(x, w).cpu(), exact(x, w))


def test_c7_im2col_beyond_32_bits(clean):
    need(6)
    from aotconv.problem import forward_problem
    from gen.sampled import at_places

    x, w = integers(1, 256, 19, 146, 258, most=1), integers(256, 256, 3, 3, 3, most=1)
    p = forward_problem(tuple(x.shape), tuple(w.shape), "f16")
    poison = torch.full(p.y.sizes, float("nan"), device="cuda", dtype=torch.float16)
    place = poison.data_ptr()
    del poison
    assert served(x, w) != "aten"
    y = aotconv.conv3d(x, w)
    assert y.data_ptr() == place and not y.isnan().any()
    points = torch.stack([torch.randint(size, (1000,), device="cuda") for size in y.shape])
    points = tuple(torch.cat([points, torch.tensor(y.shape, device="cuda")[:, None] - 1], 1))
    assert torch.equal(y[points], at_places("fwd", p, torch.stack(points, 1), x=x, w=w)[0].half())


def test_c9_batch_and_groups_beyond_a_grid():
    for x, w, groups in ((integers(70000, 1, 4, 4), integers(1, 1, 3, 3), 1), (integers(1, 70000, 4, 4), integers(70000, 1, 3, 3), 70000)):
        assert served(x, w, groups=groups) != "aten"
        assert torch.equal(aotconv.conv2d(x, w, None, 1, 0, 1, groups).cpu(), exact(x, w, None, 1, 0, 1, groups))


# ---- arguments --------------------------------------------------------------------------------------------------------

BAD = {
    "groups 0": dict(groups=0), "groups -1": dict(groups=-1), "groups -2^63": dict(groups=-(2**63)), "groups 2^70": dict(groups=2**70),
    "groups 3": dict(groups=3), "stride 0": dict(stride=0), "stride -1": dict(stride=-1), "stride 1.5": dict(stride=1.5),
    "stride of three": dict(stride=(1, 2, 3)), "stride of none": dict(stride=()), "stride huge": dict(stride=2**40),
    "padding -1": dict(padding=-1), "padding SAME": dict(padding="SAME"), "same with stride": dict(padding="same", stride=2),
    "dilation 0": dict(dilation=0), "dilation too large": dict(dilation=9), "groups text": dict(groups="2"),
}


@pytest.mark.aten
@pytest.mark.parametrize("name", BAD)
def test_c35_c37_c39_bad_arguments(name):
    x, w = integers(1, 4, 5, 5), integers(8, 4, 3, 3)
    expected = outcome(F.conv2d, x, w, **BAD[name])
    assert outcome(aotconv.conv2d, x, w, **BAD[name]) == expected
    assert name == "stride huge" or isinstance(expected, type)


def tensors():
    x, w, b = integers(2, 4, 5, 5), integers(8, 4, 3, 3), integers(8)
    return {
        "rank 2 input": (x[0, 0], w), "rank 5 input": (x[None], w), "rank 3 weight": (x, w[0]), "rank 2 weight": (x, w[0, 0]),
        "weight larger than input": (x[..., :2], w), "other channels": (x[:, :3], w), "no tensor": (None, w), "number": (x, 3),
        "bias too short": (x, w, b[:3]), "bias of rank 2": (x, w, b[None]), "bias a number": (x, w, 1.0),
        "bias float32": (x, w, b.float()), "bias bfloat16": (x.half(), w, b.bfloat16()), "weight float32": (x, w.float()),
        "bfloat16 with float16 bias": (x.bfloat16(), w.bfloat16(), b), "input on the CPU": (x.cpu(), w), "weight on the CPU": (x, w.cpu()),
        "bias on the CPU": (x, w, b.cpu()), "empty kernel": (x, w[..., :0]),
    }


@pytest.mark.aten
@pytest.mark.parametrize("name", tensors() if torch.cuda.is_available() else ["skipped"])
def test_c55_bad_tensors(name):
    arguments = tensors()[name]
    expected = outcome(F.conv2d, *arguments)
    assert isinstance(expected, type)
    assert outcome(aotconv.conv2d, *arguments) is expected


def test_c55_strided_bias():
    check(integers(2, 4, 5, 5), integers(8, 4, 3, 3), integers(16)[::2])


def test_c39_same_padding_puts_the_extra_zero_last():
    x, w = torch.tensor([[[1.0, 2, 3, 4]]], device="cuda"), torch.tensor([[[1.0, 10]]], device="cuda")
    assert aotconv.conv1d(x, w, padding="same").flatten().tolist() == [21, 32, 43, 4]
    for kernel in ((2, 3), (4, 4), (3, 3)):
        x, w = integers(2, 4, 7, 6), integers(8, 4, *kernel)
        for memory in (VIEWS[0], channels_last):
            check(memory(x), w, None, 1, "same", (1, 2), ours=False)
    check(integers(2, 4, 7, 6), integers(8, 4, 3, 3), None, 2, "valid", ours=False)


def test_c41_one_element_lists_and_unbatched():
    x, w = integers(2, 3, 9), integers(4, 3, 3)
    for one in (1, (1,), [1]):
        y = aotconv.conv1d(x, w, None, one, 0 if one == 1 else type(one)([0]), one)
        assert torch.equal(y.cpu(), exact(x, w))
    for rank in (1, 2, 3):
        x, w = (integers(*sizes) for sizes in SIZES[rank])
        check(x[0], w, None, 1, 1)


@pytest.mark.aten
def test_c53_other_dtypes_are_atens():
    for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool, torch.complex64, torch.float64, torch.float8_e4m3fn):
        x, w = torch.ones(1, 1, 6, 6, device="cuda").to(dtype), torch.ones(1, 1, 3, 3, device="cuda").to(dtype)
        expected = outcome(F.conv2d, x, w, None, 1, 1)
        assert outcome(aotconv.conv2d, x, w, None, 1, 1) == expected
        if not isinstance(expected, type):
            assert torch.equal(aotconv.conv2d(x, w, None, 1, 1), F.conv2d(x, w, None, 1, 1))


# ---- flags ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tf32_flags():
    before = torch.backends.cudnn.conv.fp32_precision
    yield
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.conv.fp32_precision = before


def precise_bits():
    x, w = torch.zeros(1, 64, 8, 8, device="cuda"), torch.zeros(64, 64, 3, 3, device="cuda")
    x[:, 0], w[:, 0] = 1 + 2.0**-12, 0
    w[:, 0, 1, 1] = 1
    x, w = channels_last(x), channels_last(w)
    why = aotconv.explain(x, w, None, 1, 1)
    assert why.tier != "aten"
    return aotconv.conv2d(x, w, None, 1, 1)[0, 0, 4, 4].item(), why.variant


def test_c49_both_tf32_flags_are_read_at_each_call(tf32_flags):
    torch.backends.cudnn.allow_tf32 = True
    assert "-tf32-" in precise_bits()[1]
    torch.backends.cudnn.allow_tf32 = False
    assert precise_bits()[0] == 1.000244140625
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    assert precise_bits()[0] == 1.000244140625
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    value, variant = precise_bits()
    assert "-tf32-" in variant and value != 1.000244140625


def test_c57_the_same_bits_every_time():
    x, w = torch.randn(16, 64, 28, 28, device="cuda").half(), torch.randn(64, 64, 3, 3, device="cuda").half()
    first = aotconv.conv2d(x, w, None, 1, 1)
    assert all(torch.equal(aotconv.conv2d(x, w, None, 1, 1), first) for _ in range(20))


@pytest.mark.aten
def test_strides_without_cudnn():
    x, w = channels_last(integers(2, 8, 9, 9)), integers(16, 8, 3, 3)
    with torch.backends.cudnn.flags(enabled=False):
        assert outcome(aotconv.conv2d, x, w) == outcome(F.conv2d, x, w)
