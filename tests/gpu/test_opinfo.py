"""torch.testing's own samples of convolutions, and its nn.Conv* modules, through aotconv: same results, same errors."""

import pytest
import torch
import torch.nn.functional as F

import aotconv

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

FUNCTIONS = [f"conv{rank}d" for rank in (1, 2, 3)] + [f"conv_transpose{rank}d" for rank in (1, 2, 3)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}


def op_info(name):
    from torch.testing._internal.common_methods_invocations import op_db

    allow_flags_again()
    return next(op for op in op_db if op.name == f"nn.functional.{name}")


def allow_flags_again():
    """torch.testing forbids to set torch.backends' flags, in the whole process; other tests here do."""
    setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)


@pytest.fixture(autouse=True)
def kernels_in_ieee(monkeypatch):
    """Strict mode: what is compared with aten is a kernel's work."""
    from aotconv.operators import runtime

    monkeypatch.setattr(runtime, "mode", "strict")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_samples(name, dtype):
    ours, aten = getattr(aotconv, name), getattr(F, name)
    count = 0
    for sample in op_info(name).sample_inputs("cuda", dtype, requires_grad=True):
        compare(ours, aten, sample, dtype)
        count += 1
    assert count > 3


def compare(ours, aten, sample, dtype):
    """Result, strides and gradients of one sample."""
    expected = aten(sample.input, *sample.args, **sample.kwargs)
    found = ours(sample.input, *sample.args, **sample.kwargs)
    assert found.shape == expected.shape and found.stride() == expected.stride() and found.dtype == expected.dtype
    near(found, expected, dtype)
    leaves = [t for t in (sample.input, *sample.args) if isinstance(t, torch.Tensor) and t.requires_grad]
    weight = torch.randn_like(expected)
    for a, b in zip(torch.autograd.grad(found, leaves, weight), torch.autograd.grad(expected, leaves, weight)):
        assert a.shape == b.shape and a.stride() == b.stride()
        near(a, b, dtype)


def near(found, expected, dtype):
    """Within the two libraries' rounding, relative to the largest element."""
    if expected.numel():
        scale = expected.detach().abs().max().clamp(min=1).item()
        torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(name):
    ours, aten = getattr(aotconv, name), getattr(F, name)
    info = op_info(name)
    if info.error_inputs_func is None:
        pytest.skip("torch.testing has no error samples for it")
    for error in info.error_inputs("cuda"):
        sample = error.sample_input
        with pytest.raises(error.error_type):
            aten(sample.input, *sample.args, **sample.kwargs)
        with pytest.raises(error.error_type):
            ours(sample.input, *sample.args, **sample.kwargs)


@pytest.mark.parametrize("name", [f"Conv{r}d" for r in (1, 2, 3)] + [f"ConvTranspose{r}d" for r in (1, 2, 3)])
def test_modules(name, monkeypatch):
    """nn.Conv* with aotconv's functions in place of torch's."""
    from torch.testing._internal.common_modules import module_db

    allow_flags_again()
    info = next(m for m in module_db if m.name == f"nn.{name}")
    function = {"Conv": "conv", "ConvTranspose": "conv_transpose"}[name.rstrip("123d")] + name[-2:]
    count = 0
    for module_input in info.module_inputs_func(info, device="cuda", dtype=torch.float32, requires_grad=False, training=False):
        module = info.module_cls(*module_input.constructor_input.args, **module_input.constructor_input.kwargs).cuda()
        call = module_input.forward_input
        if call is None:
            continue
        expected = module(*call.args, **call.kwargs)
        with monkeypatch.context() as patch:
            patch.setattr(F, function, getattr(aotconv, function))
            found = module(*call.args, **call.kwargs)
        near(found, expected, torch.float32)
        count += 1
    assert count


def test_weight_gradient_is_bitwise_repeatable():
    """C57: the same gradients in 20 runs."""
    x = torch.randn(16, 64, 28, 28, device="cuda", dtype=torch.float16)
    w = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.float16)
    g = torch.randn(16, 64, 28, 28, device="cuda", dtype=torch.float16)
    call = lambda: aotconv.convolution_backward(g, x, w, [64], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
    first = call()
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(first, call()))


def test_gradients_of_views():
    """C25: gradients that are views of a bigger gradient."""
    x = torch.randn(3, 4, 6, 6, device="cuda", requires_grad=True)
    w1, w2 = (torch.randn(4, 4, 3, 3, device="cuda", requires_grad=True) for _ in range(2))
    grads = []
    for conv in (aotconv.conv2d, F.conv2d):
        loss = torch.cat([conv(x, w1, padding=1), conv(x, w2, padding=1)], 1).pow(2).sum()
        grads.append(torch.autograd.grad(loss, (x, w1, w2)))
    for a, b in zip(*grads):
        near(a, b, torch.float32)


def test_input_gradient_of_a_strided_pointwise():
    """C43: positions that no window meets are zero, and written."""
    x, w = torch.ones(1, 2, 5, 5, device="cuda"), torch.full((3, 2, 1, 1), 2.0, device="cuda")
    g = torch.ones(1, 3, 3, 3, device="cuda")
    dx, dw, db = aotconv.convolution_backward(g, x, w, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False])
    expected = torch.zeros(1, 2, 5, 5, device="cuda")
    expected[:, :, ::2, ::2] = 6
    assert torch.equal(dx, expected) and dw is None and db is None


@pytest.mark.parametrize("C", [1, 2, 3, 4, 5, 6, 7, 8, 10, 14])
def test_weight_gradient_of_awkward_channels(C):
    """C45: exact on integers whatever the channel counts."""
    for K in (1, 2, 3, 4, 5, 6, 7, 8, 10, 14):
        x = torch.randint(-3, 4, (3, C, 5, 5), device="cuda").half()
        g = torch.randint(-3, 4, (3, K, 5, 5), device="cuda").half()
        w = torch.zeros(K, C, 1, 1, device="cuda").half()
        dw = aotconv.convolution_backward(g, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])[1]
        expected = torch.einsum("nkhw,nchw->kc", g.double(), x.double())
        assert torch.equal(dw.double()[:, :, 0, 0], expected)


def test_unasked_gradients_are_none():
    """C69: nothing is computed that the mask does not ask for."""
    x, w = torch.randn(2, 8, 9, 9, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
    g = torch.randn(2, 8, 7, 7, device="cuda")
    for mask in ([True, False, False], [False, True, False], [False, False, True]):
        result = aotconv.convolution_backward(g, x, w, [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)
        assert [t is not None for t in result] == mask
