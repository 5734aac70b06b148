"""The torch operators: aten's signatures over the native operator, with aten where no kernel serves. Imports torch.

    torch.ops.aotconv.convolution, torch.ops.aotconv.convolution_backward

Fake kernels are aten's own; the gradient of the first is the second; a second order is aten's.
"""

import torch

from aotconv import geometry
from aotconv.runtime import AotconvError, Runtime

runtime = Runtime()
aten = torch.ops.aten
NO_GRADIENT_OF_LISTS = (None,) * 6

GEOMETRY = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups"
_library = torch.library.Library("aotconv", "FRAGMENT")
_library.define(f"convolution(Tensor input, Tensor weight, Tensor? bias, {GEOMETRY}) -> Tensor",
                tags=(torch.Tag.pt2_compliant_tag,))
_library.define(f"convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, {GEOMETRY}, "
                "bool[3] output_mask) -> (Tensor, Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))


def run(*arguments):
    """The native operator (a, b, c, five integers), which answers None where aten serves.

    The first call loads it and puts it in this function's place.
    """
    global run
    run = _nothing if runtime.mode == "off" or runtime.start() is None else torch.ops.aotconv._run.default._op
    return run(*arguments)


def _nothing(*_):
    return None


def flags_of(input) -> int:
    """What the choice of a kernel reads besides the call: TF32, which matters to float32 alone, and strict mode."""
    flags = geometry.STRICT if runtime.mode == "strict" else 0
    return flags | float32_flags() if input.dtype is torch.float32 else flags


def float32_flags() -> int:
    """Read per call, through the API that knows both the old flag and the new."""
    return geometry.TF32 if torch.backends.cudnn.conv.fp32_precision == "tf32" else 0


def words_of(kind, flags, stride, padding, dilation, transposed, output_padding, groups):
    """The native operator's integers; None where they do not fit."""
    stride, padding, dilation, output_padding = (tuple(map(int, v)) for v in (stride, padding, dilation, output_padding))
    return geometry.pack_words(kind, stride, padding, dilation, transposed, output_padding, int(groups), flags)


def serves(tensor) -> bool:
    """Whether kernels are asked at all. Without cuDNN aten lays its results out in another way, so it keeps the call."""
    if not tensor.is_cuda or runtime.mode == "off":
        return False
    return torch._C._get_cudnn_enabled() or runtime.mode == "strict"


# --- forward ---------------------------------------------------------------------------------------------------------


def _convolution(input, weight, bias, *lists):
    """aotconv::convolution on real tensors."""
    if serves(input):
        words = words_of(geometry.FWD, flags_of(input), *lists)
        result = None if words is None else run(input, weight, bias, *words)
        if result is not None:
            return result
        if runtime.mode == "strict":
            _refuse("fwd", input, weight, bias, lists, aten.convolution.default(*map(_meta, (input, weight, bias)), *lists))
    return aten.convolution.default(input, weight, bias, *lists)


def _meta(tensor):
    """The tensor without its data: what aten refuses of it, aten refuses, and computes nothing."""
    return None if tensor is None else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _refuse(op, input, weight, bias, lists, result):
    """Strict mode, and no kernel took the call: an empty `result` is left to aten, anything else raises with the reason."""
    if result.numel() == 0:
        return
    from aotconv.report import explain

    stride, padding, dilation, transposed, output_padding, groups = lists
    answer = explain(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, op=op)
    reasons = "; ".join(f"{tier}: {reason}" for tier, reason in answer.reasons)
    if answer.variant:  # dispatch chose one, so loading or launching it failed
        reasons = runtime.fault or f"{answer.variant} was not loaded"
    raise AotconvError(f"AOTCONV_MODE=strict and no kernel serves this convolution ({reasons})")


def _convolution_meta(input, weight, bias, *lists):
    """Sizes, strides and errors are aten's; a 1-D input is made contiguous there, which its meta function forgets."""
    return aten.convolution.default(input.contiguous() if input.dim() == 3 else input, weight, bias, *lists)


def _setup(ctx, inputs, output):
    input, weight, bias, *ctx.lists = inputs
    ctx.bias_sizes = None if bias is None else list(bias.shape)
    ctx.save_for_backward(input, weight)


def _gradient(ctx, grad):
    """The second order is aten's: its operator is differentiable, ours is not."""
    input, weight = ctx.saved_tensors
    mask = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[2] and ctx.bias_sizes is not None]
    operator = aten.convolution_backward.default if torch.is_grad_enabled() else torch.ops.aotconv.convolution_backward.default
    return (*operator(grad, input, weight, ctx.bias_sizes, *ctx.lists, mask), *NO_GRADIENT_OF_LISTS)


def _autocast(input, weight, bias, *lists):
    """aten's rule: convolutions run in the autocast dtype."""
    dtype = torch.get_autocast_dtype("cuda")
    cast = lambda t: t.to(dtype) if t is not None and t.is_cuda and t.is_floating_point() and t.dtype != torch.float64 else t
    with torch.autocast("cuda", enabled=False):
        return torch.ops.aotconv.convolution(cast(input), cast(weight), cast(bias), *lists)


# --- backward --------------------------------------------------------------------------------------------------------


def _convolution_backward(grad, input, weight, bias_sizes, *rest):
    """aotconv::convolution_backward on real tensors; what `output_mask` does not ask for is None and not computed."""
    *lists, mask = rest
    if not serves(grad):
        return aten.convolution_backward.default(grad, input, weight, bias_sizes, *lists, mask)
    dx = _one_gradient(geometry.BWD_INPUT, grad, input, weight, lists) if mask[0] else None
    dw = _one_gradient(geometry.BWD_WEIGHT, grad, input, weight, lists) if mask[1] else None
    left = [mask[0] and dx is None, mask[1] and dw is None, mask[2] and dx is None and dw is None]
    db = None
    if any(left):
        if runtime.mode == "strict" and any(left[:2]):
            _refuse("bwd_input" if left[0] else "bwd_weight", input, weight, None, lists, input if left[0] else weight)
        served = aten.convolution_backward.default(grad, input, weight, bias_sizes, *lists, left)
        dx, dw, db = (ours if aten_one is None or not asked else aten_one
                      for ours, aten_one, asked in zip((dx, dw, None), served, left))
    if mask[2] and db is None and bias_sizes is not None:
        db = grad.sum([0, *range(2, grad.dim())])
    return dx, dw, db


def _one_gradient(kind, grad, input, weight, lists):
    """The gradient of the input or of the weight from a kernel; None where aten serves."""
    words = words_of(kind, flags_of(input), *lists)
    if words is None:
        return None
    return run(grad, weight, input, *words) if kind == geometry.BWD_INPUT else run(grad, input, weight, *words)


def _convolution_backward_meta(grad, input, weight, bias_sizes, *rest):
    """aten's, with the 1-D correction of the forward operator."""
    if input.dim() == 3:
        input = input.contiguous()
    return aten.convolution_backward.default(grad, input, weight, bias_sizes, *rest)


_library.impl("convolution", _convolution, "CompositeExplicitAutograd")
_library.impl("convolution", _autocast, "AutocastCUDA")
_library.impl("convolution_backward", _convolution_backward, "CompositeExplicitAutograd")
torch.library.register_fake("aotconv::convolution", _convolution_meta, lib=_library)
torch.library.register_fake("aotconv::convolution_backward", _convolution_backward_meta, lib=_library)
torch.library.register_autograd("aotconv::convolution", _gradient, setup_context=_setup, lib=_library)
