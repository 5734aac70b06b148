"""The convolutions: torch.nn.functional's signatures, aten's argument order, and the torch operators. Imports torch.

The hot path is `conv2d` and its sisters: for plain CUDA tensors that need no gradient they look up the call's integers
and enter the native operator, which answers with a tensor, or with None where aten serves. Everything unusual (lists,
strings, autograd, autocast, transforms, subclasses, tracing) leaves it for the operators below or for aten itself.
"""

import torch
import torch.autograd.forward_ad as _forward_ad
import torch.nn.functional as F

from aotconv import geometry
from aotconv.runtime import AotconvError, Runtime

runtime = Runtime()

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_WORDS_LIMIT = 4096
_words: dict = {}            # (rank, stride, padding, dilation, groups, flags) -> the native operator's integers
_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_autocast = torch.is_autocast_enabled
_tracing = torch._C._get_tracing_state


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv1d: input (N, C_in, L) or (C_in, L), weight (C_out, C_in / groups, k)."""
    result = _direct(1, input, weight, bias, stride, padding, dilation, groups)
    return _forward(1, input, weight, bias, stride, padding, dilation, groups) if result is None else result


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv2d: input (N, C_in, H, W) or (C_in, H, W), weight (C_out, C_in / groups, kh, kw)."""
    result = _direct(2, input, weight, bias, stride, padding, dilation, groups)
    return _forward(2, input, weight, bias, stride, padding, dilation, groups) if result is None else result


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv3d: input (N, C_in, D, H, W) or (C_in, D, H, W), weight (C_out, C_in / groups, ...)."""
    result = _direct(3, input, weight, bias, stride, padding, dilation, groups)
    return _forward(3, input, weight, bias, stride, padding, dilation, groups) if result is None else result


def _direct(rank, input, weight, bias, stride, padding, dilation, groups):
    """The native operator's answer, or None where the call is not plain or aten serves."""
    if _compiling() or not _is_plain(input, weight, bias):
        return None
    try:
        words = _words[rank, stride, padding, dilation, groups, _flags(input)]
    except (KeyError, TypeError):  # first sight, or lists
        words = _prepare(rank, input, stride, padding, dilation, groups)
        if words is None:
            return None
    return _run(input, weight, bias, *words)


def _is_plain(input, weight, bias) -> bool:
    """CUDA tensors of no subclass, no gradient wanted of either kind, and nothing that must see the call."""
    if type(input) not in _PLAIN or type(weight) not in _PLAIN or not input.is_cuda:
        return False
    if _grad_enabled() and (input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        return False
    if bias is not None and type(bias) not in _PLAIN:
        return False
    if _forward_ad._current_level >= 0 or _tracing() is not None:
        return False
    return not (_dispatch_modes() or _function_modes() or _autocast() or _transforms() is not None)


def _flags(input) -> int:
    """What aten would read for this call: TF32 matters to float32 alone."""
    return _float32_flags() if input.dtype is torch.float32 else 0


def _float32_flags() -> int:
    return geometry.TF32 if torch.backends.cudnn.conv.fp32_precision == "tf32" else 0


def _prepare(rank, input, stride, padding, dilation, groups):
    """The integers of a call seen for the first time; None for what the hot path does not take."""
    if isinstance(padding, str) or input.dim() != rank + 2:
        return None
    try:
        lists = [_spread(v, rank) for v in (stride, padding, dilation)]
        flags = _flags(input)
        words = geometry.pack_words(geometry.FWD, *lists, False, (0,) * rank, groups, flags)
    except (TypeError, ValueError):
        return None
    if words is not None:
        if len(_words) >= _WORDS_LIMIT:
            _words.clear()
        try:
            _words[rank, stride, padding, dilation, groups, flags] = words
        except TypeError:  # lists are spelled anew each time
            pass
    return words


def _spread(value, rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    if not all(type(v) is int for v in values):
        raise TypeError("sizes are ints")
    return values * rank if len(values) == 1 else values


def _run(*arguments):
    """The native operator; the first call loads it and puts it in this function's place."""
    global _run
    if runtime.mode == "off" or runtime.start() is None:
        _run = _nothing
    else:
        _run = torch.ops.aotconv._run.default._op
    return _run(*arguments)


def _nothing(*_):
    return None


_FUNCTIONAL = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _forward(rank, input, weight, bias, stride, padding, dilation, groups):
    """A call that the hot path did not answer: spelled out, given to the operator, or to aten for its exact errors."""
    aten = _FUNCTIONAL[rank]
    if _served_by_aten(input, weight) or (bias is not None and not isinstance(bias, torch.Tensor)):
        return aten(input, weight, bias, stride, padding, dilation, groups)
    if isinstance(padding, str):
        return _with_named_padding(rank, input, weight, bias, stride, padding, dilation, groups)
    if input.dim() == rank + 1 and weight.dim() == rank + 2:
        return _forward(rank, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    try:
        lists = [_spread(v, rank) for v in (stride, padding, dilation)]
    except (TypeError, ValueError):
        return aten(input, weight, bias, stride, padding, dilation, groups)
    if input.dim() != rank + 2 or weight.dim() != rank + 2 or any(len(values) != rank for values in lists):
        return aten(input, weight, bias, stride, padding, dilation, groups)
    return torch.ops.aotconv.convolution(input, weight, bias, *lists, False, [0] * rank, groups)


def _served_by_aten(input, weight) -> bool:
    """No tensor of ours: other devices, other types, mode off; and what only aten has rules for."""
    if not isinstance(input, torch.Tensor) or not isinstance(weight, torch.Tensor) or runtime.mode == "off":
        return True
    return not input.is_cuda or _rules_are_atens()


def _rules_are_atens() -> bool:
    """Inside vmap, torch.func.grad and forward-mode AD, where our operator has no rule and would drop tangents."""
    return not _compiling() and (_transforms() is not None or _forward_ad._current_level >= 0)


def _with_named_padding(rank, input, weight, bias, stride, padding, dilation, groups):
    """padding="valid" and "same" as aten: an odd total puts the extra zero at the end; anything else aten refuses."""
    strides = (stride,) if isinstance(stride, int) else tuple(stride)
    if padding == "valid":
        return _forward(rank, input, weight, bias, stride, 0, dilation, groups)
    if padding != "same" or any(s != 1 for s in strides) or weight.dim() != rank + 2:
        return _FUNCTIONAL[rank](input, weight, bias, stride, padding, dilation, groups)
    dilations = (dilation,) * rank if isinstance(dilation, int) else tuple(dilation) * (rank if len(dilation) == 1 else 1)
    totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:])]
    if any(total % 2 for total in totals):
        extra = [v for total in reversed(totals) for v in (0, total % 2)]
        input = F.pad(input, extra)
    call = {1: conv1d, 2: conv2d, 3: conv3d}[rank]
    return call(input, weight, bias, stride, [total // 2 for total in totals], dilation, groups)


# --- torch operators ---------------------------------------------------------------------------------------------------

_library = torch.library.Library("aotconv", "FRAGMENT")
_library.define("convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
                "bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """aten.convolution's arguments and result. input (N, C_in, *spatial) or without N; lists of one element are spread."""
    if not isinstance(input, torch.Tensor) or not isinstance(weight, torch.Tensor):
        return torch.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    rank = weight.dim() - 2
    if input.dim() == rank + 1:
        batched = convolution(input.unsqueeze(0), weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return batched.squeeze(0)
    lists = [[v] if isinstance(v, int) else list(v) for v in (stride, padding, dilation, output_padding)]
    lists = [v * rank if len(v) == 1 else v for v in lists]
    call = torch.ops.aten.convolution.default if _rules_are_atens() else torch.ops.aotconv.convolution
    return call(input, weight, bias, *lists[:3], transposed, lists[3], groups)


def _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """The operator on real tensors."""
    if input.is_cuda and runtime.mode != "off":
        flags = _flags(input)
        words = _words_of(geometry.FWD, stride, padding, dilation, transposed, output_padding, groups, flags)
        result = None if words is None else _run(input, weight, bias, *words)
        if result is not None:
            return result
        if runtime.mode == "strict":
            _refuse(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return torch.ops.aten.convolution.default(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _words_of(kind, stride, padding, dilation, transposed, output_padding, groups, flags):
    lists = [tuple(int(v) for v in values) for values in (stride, padding, dilation)]
    return geometry.pack_words(kind, *lists, transposed, tuple(int(v) for v in output_padding), int(groups), flags)


def _refuse(input, weight, bias, *arguments):
    """Strict mode: what aten would refuse, aten refuses; anything else that no kernel serves raises with the reason."""
    result = torch.ops.aten.convolution.default(input, weight, bias, *arguments)
    if result.numel() == 0:
        return
    from aotconv.report import explain

    stride, padding, dilation, transposed, output_padding, groups = arguments
    answer = explain(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    reasons = "; ".join(f"{tier}: {reason}" for tier, reason in answer.reasons)
    if answer.variant:  # dispatch chose one, so loading or launching it failed
        reasons = runtime.fault or f"{answer.variant} was not loaded"
    raise AotconvError(f"AOTCONV_MODE=strict and no kernel serves this convolution ({reasons})")


def _convolution_meta(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Sizes, strides and errors are aten's; a 1-D input is made contiguous there, which its meta function forgets."""
    if input.dim() == 3:
        input = input.contiguous()
    return torch.ops.aten.convolution.default(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _convolution_setup(ctx, inputs, output):
    input, weight, bias, *ctx.geometry = inputs
    ctx.bias_sizes = None if bias is None else list(bias.shape)
    ctx.save_for_backward(input, weight)


def _convolution_backward(ctx, grad):
    input, weight = ctx.saved_tensors
    mask = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[2] and ctx.bias_sizes is not None]
    grads = torch.ops.aten.convolution_backward.default(grad, input, weight, ctx.bias_sizes, *ctx.geometry, mask)
    return (*grads, *(None,) * len(ctx.geometry))


_library.impl("convolution", _convolution, "CompositeExplicitAutograd")
torch.library.register_fake("aotconv::convolution", _convolution_meta, lib=_library)
torch.library.register_autograd("aotconv::convolution", _convolution_backward, setup_context=_convolution_setup, lib=_library)


def _autocast_convolution(input, weight, bias, *arguments):
    """aten's rule: convolutions run in the autocast dtype."""
    dtype = torch.get_autocast_dtype("cuda")
    cast = lambda t: t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
    with torch.autocast("cuda", enabled=False):
        return torch.ops.aotconv.convolution(cast(input), cast(weight), cast(bias), *arguments)


_library.impl("convolution", _autocast_convolution, "AutocastCUDA")
