"""The convolutions as functions: torch.nn.functional's signatures and aten's argument orders. Imports torch.

The hot path is `_direct`: for plain CUDA tensors that need no gradient it looks up the call's integers and enters the
native operator, which answers with a tensor, or with None where aten serves. Everything unusual (lists, strings,
autograd, autocast, transforms, subclasses, tracing) leaves it for the torch operators or for aten itself.
"""

import torch
import torch.autograd.forward_ad as _forward_ad
import torch.nn.functional as F

from aotconv import geometry
from aotconv import operators as _operators
from aotconv.operators import flags_of, runtime

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_WORDS_LIMIT = 4096
_INT64_MAX = 2**63 - 1
_words: dict = {}            # what a call looks like -> the native operator's integers
_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_autocast = torch.is_autocast_enabled
_tracing = torch._C._get_tracing_state
_cudnn_enabled = torch._C._get_cudnn_enabled
_FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv1d: input (N, C_in, L) or (C_in, L), weight (C_out, C_in / groups, k)."""
    result = _direct(1, False, input, weight, bias, stride, padding, dilation, 0, groups)
    return _forward(1, input, weight, bias, stride, padding, dilation, groups) if result is None else result


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv2d: input (N, C_in, H, W) or (C_in, H, W), weight (C_out, C_in / groups, kh, kw)."""
    result = _direct(2, False, input, weight, bias, stride, padding, dilation, 0, groups)
    return _forward(2, input, weight, bias, stride, padding, dilation, groups) if result is None else result


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv3d: input (N, C_in, D, H, W) or (C_in, D, H, W), weight (C_out, C_in / groups, ...)."""
    result = _direct(3, False, input, weight, bias, stride, padding, dilation, 0, groups)
    return _forward(3, input, weight, bias, stride, padding, dilation, groups) if result is None else result


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """torch.nn.functional.conv_transpose1d: input (N, C_in, L) or (C_in, L), weight (C_in, C_out / groups, k)."""
    result = _direct(1, True, input, weight, bias, stride, padding, dilation, output_padding, groups)
    return _transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation) if result is None else result


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """torch.nn.functional.conv_transpose2d: input (N, C_in, H, W) or (C_in, H, W), weight (C_in, C_out / groups, ...)."""
    result = _direct(2, True, input, weight, bias, stride, padding, dilation, output_padding, groups)
    return _transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation) if result is None else result


def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """torch.nn.functional.conv_transpose3d: input (N, C_in, D, H, W) or without N, weight (C_in, C_out / groups, ...)."""
    result = _direct(3, True, input, weight, bias, stride, padding, dilation, output_padding, groups)
    return _transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation) if result is None else result


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """aten.convolution's arguments and result. input (N, C_in, *spatial) or without N; lists of one element are spread."""
    arguments = (bias, stride, padding, dilation, transposed, output_padding, groups)
    if not isinstance(input, torch.Tensor) or not isinstance(weight, torch.Tensor):
        return torch.convolution(input, weight, *arguments)
    rank = weight.dim() - 2
    if input.dim() == rank + 1:
        return convolution(input.unsqueeze(0), weight, *arguments).squeeze(0)
    lists = [[v] if isinstance(v, int) else list(v) for v in (stride, padding, dilation, output_padding)]
    lists = [v * rank if len(v) == 1 else v for v in lists]
    call = torch.ops.aten.convolution.default if _rules_are_atens() else torch.ops.aotconv.convolution
    return call(input, weight, bias, *lists[:3], transposed, lists[3], groups)


def convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
                         groups, output_mask):
    """aten.convolution_backward's arguments and result: (grad_input, grad_weight, grad_bias), None where not asked."""
    return torch.ops.aotconv.convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
                                                  transposed, output_padding, groups, output_mask)


def _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, benchmark,
                 deterministic, cudnn_enabled, allow_tf32=None):
    """aten._convolution's arguments: how aten would look for an algorithm means nothing here and is left out."""
    return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


# --- the hot path ----------------------------------------------------------------------------------------------------


def _direct(rank, transposed, input, weight, bias, stride, padding, dilation, output_padding, groups):
    """The native operator's answer, or None where the call is not plain or aten serves."""
    if _compiling() or not _is_plain(input, weight, bias):
        return None
    try:
        words = _words[rank, transposed, stride, padding, dilation, output_padding, groups, flags_of(input)]
    except (KeyError, TypeError):  # first sight, or lists
        words = _prepare(rank, transposed, input, stride, padding, dilation, output_padding, groups)
        if words is None:
            return None
    return _operators.run(input, weight, bias, *words)


def _is_plain(input, weight, bias) -> bool:
    """CUDA tensors of no subclass, no gradient wanted of either kind, and nothing that must see the call."""
    if type(input) not in _PLAIN or type(weight) not in _PLAIN or not input.is_cuda:
        return False
    if bias is not None and type(bias) not in _PLAIN:
        return False
    if _grad_enabled() and (input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        return False
    if _forward_ad._current_level >= 0 or _tracing() is not None or not _cudnn_enabled():
        return False
    return not (_dispatch_modes() or _function_modes() or _autocast() or _transforms() is not None)


def _prepare(rank, transposed, input, stride, padding, dilation, output_padding, groups):
    """The integers of a call seen for the first time; None for what the hot path does not take."""
    if isinstance(padding, str) or input.dim() != rank + 2:
        return None
    flags = flags_of(input)
    try:
        lists = [_spread(v, rank) for v in (stride, padding, dilation)]
        words = geometry.pack_words(geometry.FWD, *lists, transposed, _spread(output_padding, rank), groups, flags)
    except (TypeError, ValueError):
        return None
    if words is not None:
        if len(_words) >= _WORDS_LIMIT:
            _words.clear()
        try:
            _words[rank, transposed, stride, padding, dilation, output_padding, groups, flags] = words
        except TypeError:  # lists are spelled anew each time
            pass
    return words


def _spread(value, rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    if not all(type(v) is int for v in values):
        raise TypeError("sizes are ints")
    return values * rank if len(values) == 1 else values


# --- everything else -------------------------------------------------------------------------------------------------


def _forward(rank, input, weight, bias, stride, padding, dilation, groups):
    """A call that the hot path did not answer: spelled out, given to the operator, or to aten for its exact errors."""
    if _served_by_aten(input, weight, bias):
        return _FORWARD[rank](input, weight, bias, stride, padding, dilation, groups)
    if isinstance(padding, str):
        return _with_named_padding(rank, input, weight, bias, stride, padding, dilation, groups)
    if input.dim() == rank + 1 and weight.dim() == rank + 2:
        return _forward(rank, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    lists = _spread_all(rank, input, weight, groups, stride, padding, dilation, 0)
    if lists is None:
        return _FORWARD[rank](input, weight, bias, stride, padding, dilation, groups)
    return torch.ops.aotconv.convolution(input, weight, bias, *lists[:3], False, lists[3], groups)


def _transpose(rank, input, weight, bias, stride, padding, output_padding, groups, dilation):
    """As `_forward`, for a transposed call."""
    if _served_by_aten(input, weight, bias):
        return _TRANSPOSED[rank](input, weight, bias, stride, padding, output_padding, groups, dilation)
    if input.dim() == rank + 1 and weight.dim() == rank + 2:
        return _transpose(rank, input.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation).squeeze(0)
    lists = _spread_all(rank, input, weight, groups, stride, padding, dilation, output_padding)
    if lists is None:
        return _TRANSPOSED[rank](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return torch.ops.aotconv.convolution(input, weight, bias, *lists[:3], True, lists[3], groups)


def _spread_all(rank, input, weight, groups, *values):
    """Every list with one number for each dimension; None where that cannot be, and aten says why."""
    if isinstance(groups, bool) or not isinstance(groups, (int, torch.SymInt)) or abs(groups) > _INT64_MAX:
        return None
    try:
        lists = [_spread(v, rank) for v in values]
    except (TypeError, ValueError):
        return None
    fits = input.dim() == rank + 2 and weight.dim() == rank + 2 and all(len(v) == rank for v in lists)
    return lists if fits else None


def _served_by_aten(input, weight, bias) -> bool:
    """No tensor of ours: other devices, other types, mode off; and what only aten has rules for (its functions take
    complex numbers apart, its operators do not)."""
    tensors = (input, weight) if bias is None else (input, weight, bias)
    if not all(isinstance(t, torch.Tensor) for t in tensors) or runtime.mode == "off":
        return True
    return not input.is_cuda or input.is_complex() or _rules_are_atens()


def _rules_are_atens() -> bool:
    """Inside vmap, torch.func.grad and forward-mode AD, where our operator has no rule and would drop tangents."""
    return not _compiling() and (_transforms() is not None or _forward_ad._current_level >= 0)


def _with_named_padding(rank, input, weight, bias, stride, padding, dilation, groups):
    """padding="valid" and "same" as aten: an odd total puts the extra zero at the end; anything else aten refuses."""
    strides = (stride,) if isinstance(stride, int) else tuple(stride)
    if padding == "valid":
        return _forward(rank, input, weight, bias, stride, 0, dilation, groups)
    if padding != "same" or any(s != 1 for s in strides) or weight.dim() != rank + 2:
        return _FORWARD[rank](input, weight, bias, stride, padding, dilation, groups)
    dilations = (dilation,) * rank if isinstance(dilation, int) else tuple(dilation) * (rank if len(dilation) == 1 else 1)
    totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:])]
    if any(total % 2 for total in totals):
        extra = [v for total in reversed(totals) for v in (0, total % 2)]
        input = F.pad(input, extra)
    call = {1: conv1d, 2: conv2d, 3: conv3d}[rank]
    return call(input, weight, bias, stride, [total // 2 for total in totals], dilation, groups)
