"""On CPU tensors every function is aten's: results, strides, exceptions; and torch's features work through it."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

import aotconv

PAIRS = {
    "conv1d": ((2, 4, 9), (8, 4, 3)), "conv2d": ((2, 4, 9, 7), (8, 4, 3, 2)), "conv3d": ((2, 4, 5, 6, 7), (8, 4, 2, 3, 3)),
    "conv_transpose1d": ((2, 4, 9), (4, 8, 3)), "conv_transpose2d": ((2, 4, 9, 7), (4, 8, 3, 2)),
    "conv_transpose3d": ((2, 4, 5, 6, 7), (4, 8, 2, 3, 3)),
}
FORWARD = [name for name in PAIRS if "transpose" not in name]
REST = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def outcome(call, *arguments, **named):
    """(sizes, strides, dtype, values) of the result, or the type of the exception."""
    try:
        y = call(*arguments, **named)
    except Exception as error:
        return type(error)
    return y.shape, y.stride(), y.dtype, y.double().nan_to_num().tolist()


def same(name, *arguments, **named):
    """What aten does, once ours is seen to do it too."""
    expected = outcome(getattr(F, name), *arguments, **named)
    assert outcome(getattr(aotconv, name), *arguments, **named) == expected
    return expected


def tensors(name, dtype=torch.float32):
    x, w = PAIRS[name]
    return torch.randn(x).to(dtype), torch.randn(w).to(dtype), torch.randn(8).to(dtype)


GOOD = [dict(), dict(stride=2), dict(stride=[2]), dict(padding=1), dict(padding=(1,)), dict(dilation=2), dict(groups=2, stride=(2,), dilation=[1])]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("more", GOOD)
def test_results_are_atens(name, more):
    x, w, b = tensors(name)
    if more.get("groups") == 2:
        w = w[:, :2] if "transpose" not in name else w[:, :4]
    assert not isinstance(same(name, x, w, b, **more), type)
    assert not isinstance(same(name, x[0], w, b, **more), type)
    assert not isinstance(same(name, x.movedim(1, -1).contiguous().movedim(-1, 1), w, None, **more), type)


BAD = {
    "groups 0": dict(groups=0), "groups -1": dict(groups=-1), "groups -2^63": dict(groups=-(2**63)), "groups 2^70": dict(groups=2**70),
    "groups that do not divide": dict(groups=3), "groups text": dict(groups="1"), "stride 0": dict(stride=0), "stride -1": dict(stride=-1),
    "stride 1.0": dict(stride=1.0), "stride True": dict(stride=True), "stride of four": dict(stride=(1, 1, 1, 1)),
    "stride of none": dict(stride=()), "stride None": dict(stride=None), "padding -1": dict(padding=-1), "padding SAME": dict(padding="SAME"),
    "padding None": dict(padding=None), "dilation 0": dict(dilation=0), "dilation -1": dict(dilation=-1), "dilation 2^64": dict(dilation=2**64),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("bad", BAD)
def test_c35_c37_bad_arguments(name, bad):
    x, w, b = tensors(name)
    assert isinstance(same(name, x, w, b, **BAD[bad]), type)


def test_c35_message_names_the_argument():
    x, w, _ = tensors("conv2d")
    for more, word in ((dict(groups=0), "groups"), (dict(stride=0), "stride"), (dict(padding=-1), "padding"), (dict(dilation=0), "dilation")):
        with pytest.raises(RuntimeError, match=word):
            aotconv.conv2d(x, w, **more)


@pytest.mark.parametrize("name", PAIRS)
def test_c55_bad_tensors(name):
    x, w, b = tensors(name)
    bad = [(x[0, 0], w), (x[None], w), (x, w[0]), (None, w), (x, None), (x.tolist(), w), (x, w, 1.0), (x, w, b[:3]), (x, w, b[None]),
           (x, w, b.half()), (x.half(), w.half(), b), (x.bfloat16(), w.bfloat16(), b.half()), (x, w.half()), (x[:, :3], w), (x, w[..., :0])]
    outcomes = [same(name, *arguments) for arguments in bad]
    accepted = sum(not isinstance(found, type) for found in outcomes)
    assert accepted <= (2 if "transpose" in name else 0)  # aten's transposed ones take a bias of another dtype on the CPU


def test_c37_nothing_is_floor_divided():
    with pytest.raises(RuntimeError, match="88 channels, but got 90"):
        aotconv.conv2d(torch.randn(1, 90, 7, 7), torch.randn(96, 11, 1, 1), groups=8)


def test_c39_named_padding():
    x, w = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[1.0, 10]]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # aten's, of a copy that it must make
        assert aotconv.conv1d(x, w, padding="same").flatten().tolist() == [21, 32, 43, 4]
        for name in FORWARD:
            a, b, _ = tensors(name)
            assert not isinstance(same(name, a, b, padding="same", dilation=2), type)
            assert not isinstance(same(name, a, b, padding="valid", stride=2), type)
            assert same(name, a, b, padding="same", stride=2) is RuntimeError


def test_c41_lists_of_one():
    x, w = torch.randn(2, 3, 9), torch.randn(4, 3, 3)
    for one, none in ((1, 0), ((1,), (0,)), ([1], [0])):
        assert aotconv.conv1d(x, w, None, one, none, one).shape == (2, 4, 7)


def test_c12_c14_nothing_to_compute():
    w, b = torch.randn(4, 3, 3, 3), torch.randn(4)
    assert same("conv2d", torch.randn(0, 3, 5, 5), w, b)[0] == (0, 4, 3, 3)
    assert not isinstance(same("conv2d", torch.randn(3, 0, 16, 16), torch.randn(8, 0, 3, 3), torch.arange(8.0), (2, 1)), type)
    x, w = torch.randn(0, 3, 5, 5, requires_grad=True), w.requires_grad_()
    aotconv.convolution(x, w, None, *REST).sum().backward()
    assert x.grad.shape == x.shape and not w.grad.any()


def test_c23_c31_views_and_groups():
    w = torch.randint(-3, 4, (3, 3, 4, 4)).float()[:, :, ::2, ::2]
    assert torch.equal(aotconv.conv2d(torch.ones(3, 3, 2, 2), w), aotconv.conv2d(torch.ones(3, 3, 2, 2), w.contiguous()))
    x = torch.zeros(1, 4, 1, 1)
    x[0, 3] = 1
    assert aotconv.conv2d(x, torch.ones(16, 2, 1, 1), groups=2).flatten().tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("dtype", (torch.int8, torch.int64, torch.bool, torch.complex64, torch.float64, torch.float16))
def test_c53_dtypes(dtype):
    x, w = torch.ones(1, 1, 6, 6).to(dtype), torch.ones(1, 1, 3, 3).to(dtype)
    expected, found = (outcome(lambda: torch.view_as_real(call(x, w)) if dtype.is_complex else call(x, w)) for call in (F.conv2d, aotconv.conv2d))
    assert found == expected


# ---- aten's argument order --------------------------------------------------------------------------------------------


def test_convolution_is_atens():
    x, w, b = tensors("conv2d")
    for more in (REST, ([2, 1], [1, 0], [1, 2], False, [0, 0], 1)):
        assert torch.equal(aotconv.convolution(x, w, b, *more), torch.convolution(x, w, b, *more))
        assert torch.equal(torch.ops.aotconv.convolution(x, w, b, *more), torch.convolution(x, w, b, *more))
    assert torch.equal(aotconv.convolution(x, w, b, 1, 0, 1, False, 0, 1), torch.convolution(x, w, b, *REST))
    assert torch.equal(aotconv.convolution(x[0], w, b, *REST), F.conv2d(x[0], w, b))


@pytest.mark.parametrize("change", [dict(groups=0), dict(groups=-(2**63)), dict(stride=[0, 1]), dict(stride=[1, 1, 1]), dict(padding=[-1, 0]),
                                    dict(dilation=[0, 0]), dict(input=None), dict(weight=3), dict(bias=torch.randn(3))])
def test_convolution_refuses_as_aten(change):
    x, w, b = tensors("conv2d")
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    arguments = {"input": x, "weight": w, "bias": b, **dict(zip(names, REST)), **change}
    expected = outcome(torch.convolution, *arguments.values())
    assert isinstance(expected, type) and outcome(aotconv.convolution, *arguments.values()) is expected


# ---- torch's features -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, gradient", [("conv1d", True), ("conv2d", False), ("conv3d", True), ("conv_transpose2d", True)])
def test_operator_is_as_torch_expects(name, gradient):
    x, w, b = (t.requires_grad_(gradient) for t in tensors(name))
    rank = w.dim() - 2
    rest = ([2] * rank, [1] * rank, [1] * rank, "transpose" in name, [0] * rank, 1)
    torch.library.opcheck(torch.ops.aotconv.convolution.default, (x, w, b, *rest))


def test_c21_fake_strides_are_the_real_ones():
    x, w = torch.randn(2, 7, 1).permute(0, 2, 1), torch.randn(4, 1, 3)
    torch.library.opcheck(torch.ops.aotconv.convolution.default, (x, w, None, [1], [1], [1], False, [0], 1))


def double(*sizes):
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def test_c67_gradients_of_both_orders():
    x, w, b = double(2, 4, 5, 5), double(6, 2, 3, 3), double(6)
    call = lambda *t: torch.ops.aotconv.convolution(*t, [2, 2], [1, 1], [1, 1], False, [0, 0], 2)
    assert torch.autograd.gradcheck(call, (x, w, b)) and torch.autograd.gradgradcheck(call, (x, w, b), fast_mode=True)


def test_c69_only_the_gradients_that_are_asked_for():
    for wanted in ((True, False, False), (False, True, False), (False, False, True)):
        x, w, b = (t.requires_grad_(want) for t, want in zip(tensors("conv2d"), wanted))
        aotconv.convolution(x, w, b, *REST).sum().backward()
        assert tuple(t.grad is not None for t in (x, w, b)) == wanted


def test_compile_without_a_break():
    x, w, b = tensors("conv2d")

    def model(x):
        y = aotconv.conv2d(x, w, b, padding="same", dilation=(2, 1)) + aotconv.convolution(x, w, None, 1, (2, 1), (2, 1), False, 0, 1)[..., :7]
        return aotconv.conv2d(y[0, :4], w, stride=2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), model(x))


def test_export():
    x, w, b = tensors("conv2d")

    class Model(torch.nn.Module):
        def forward(self, x):
            return aotconv.convolution(aotconv.conv2d(x, w, b)[:, :4], w, None, *REST)

    program = torch.export.export(Model(), (x,))
    assert "aotconv.convolution" in str(program.graph)
    torch.testing.assert_close(program.module()(x), Model()(x))


CALLS = {"conv2d": lambda x, w: aotconv.conv2d(x, w), "convolution": lambda x, w: aotconv.convolution(x, w, None, *REST)}


@pytest.mark.parametrize("name", CALLS)
def test_transforms(name):
    x, w, _ = tensors("conv2d")
    call = CALLS[name]
    torch.testing.assert_close(torch.vmap(lambda one: call(one[None], w))(x)[:, 0], F.conv2d(x, w))
    torch.testing.assert_close(torch.func.grad(lambda w: call(x, w).sum())(w), torch.func.grad(lambda w: F.conv2d(x, w).sum())(w))
    torch.testing.assert_close(torch.func.jvp(lambda x: call(x, w), (x,), (x,))[1], F.conv2d(x, w))
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(call(forward_ad.make_dual(x, x), w)).tangent
    torch.testing.assert_close(tangent, F.conv2d(x, w))


def test_autocast():
    x, w, _ = tensors("conv2d")
    w.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert aotconv.conv2d(x, w).dtype == F.conv2d(x, w).dtype == torch.bfloat16
        assert aotconv.convolution(x, w, None, *REST).dtype == torch.convolution(x, w, None, *REST).dtype
        aotconv.conv2d(x, w).float().sum().backward()
    assert w.grad.dtype == torch.float32


def test_c65_inference_mode():
    x, w, _ = tensors("conv2d")
    with torch.inference_mode():
        assert aotconv.conv2d(x, w).is_inference() and aotconv.convolution(x, w, None, *REST).is_inference()
        frozen = x.clone()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        aotconv.convolution(frozen, w.requires_grad_(), None, *REST)


def test_subclasses_and_modes_see_the_call():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), named=None):
            seen.append(function)
            return function(*arguments, **(named or {}))

    x, w, _ = tensors("conv2d")
    with Mode():
        aotconv.conv2d(x, w)
    assert F.conv2d in seen


def test_explain_on_the_cpu():
    x, w, _ = tensors("conv2d")
    answer = aotconv.explain(x, w)
    assert (answer.tier, answer.variant) == ("aten", None) and "cpu" in answer.reasons[0][1]
    with pytest.raises(ValueError, match="bwd_weight"):
        aotconv.explain(x, w, op="dgrad")


def test_preload_wants_a_gpu():
    with pytest.raises(ValueError, match="cpu"):
        aotconv.preload("cpu")
    if not torch.cuda.is_available():
        assert aotconv.preload() == 0
