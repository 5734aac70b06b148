"""A convolution call as integers: what the native operator takes, and back. Standard library only.

Lists cost microseconds a call in an operator's argument parser, integers do not: strides, paddings, dilations and
output paddings are packed with 20 bits a dimension; flags and groups share one word. A plan's key is these words and
the tensors' sizes, strides, dtypes, alignment and device.
"""

from dataclasses import dataclass

from aotconv.formats import result_is_channels_last, result_layout
from aotconv.problem import Layout, Problem, output_size, transposed_size

BITS = 20
LIMIT = 1 << BITS
DTYPE_NAMES = {5: "f16", 6: "f32", 15: "bf16"}  # c10::ScalarType
DTYPE_CODES = {name: code for code, name in DTYPE_NAMES.items()}
FWD, BWD_INPUT, BWD_WEIGHT = range(3)
TRANSPOSED, TF32, STRICT = 4, 8, 16
RANK_SHIFT, GROUPS_SHIFT = 5, 8
KEY_HEAD = 7


class Uncovered(Exception):
    """A call that no kernel covers; its text is the reason."""


@dataclass(frozen=True)
class Call:
    """A key, read back. tensors: a, b and c (None when absent) as the native operator got them."""

    kind: int
    transposed: bool
    tf32: bool
    strict: bool
    groups: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    device: int
    dtypes: tuple
    tensors: tuple


def pack_words(kind, stride, padding, dilation, transposed, output_padding, groups, flags=0) -> tuple[int, ...] | None:
    """The operator's five integers; None where a value does not fit (aten serves, or raises)."""
    lists = (stride, padding, dilation, output_padding)
    if any(not 0 <= v < LIMIT for values in lists for v in values) or not 0 < groups < LIMIT or len(stride) > 3:
        return None
    if any(len(values) != len(stride) for values in lists):
        return None
    word = kind | (TRANSPOSED if transposed else 0) | flags | len(stride) << RANK_SHIFT | groups << GROUPS_SHIFT
    return (*map(pack_list, lists), word)


def pack_list(values) -> int:
    word = 0
    for value in reversed(values):
        word = word << BITS | value
    return word


def unpack_list(word: int, rank: int) -> tuple[int, ...]:
    return tuple(word >> BITS * i & LIMIT - 1 for i in range(rank))


def read_key(words) -> Call:
    """The call behind a key of the native memo."""
    stride, padding, dilation, output_padding, word, device, mask = words[:KEY_HEAD]
    rank = word >> RANK_SHIFT & 3
    dtypes, tensors, at = [], [], KEY_HEAD
    for slot in range(3):
        if not mask >> slot & 1:
            dtypes.append(None)
            tensors.append(None)
            continue
        dtype, dims, align = words[at : at + 3]
        sizes = tuple(words[at + 3 : at + 3 + dims])
        tensors.append(Layout(sizes, tuple(words[at + 3 + dims : at + 3 + 2 * dims]), align))
        dtypes.append(dtype)
        at += 3 + 2 * dims
    return Call(
        word & 3, bool(word & TRANSPOSED), bool(word & TF32), bool(word & STRICT), word >> GROUPS_SHIFT,
        unpack_list(stride, rank), unpack_list(padding, rank), unpack_list(dilation, rank),
        unpack_list(output_padding, rank), device, tuple(dtypes), tuple(tensors),
    )


def problem_of(call: Call) -> Problem:
    """The Problem that a call asks for; Uncovered when its tensors are not what a kernel takes (aten then raises)."""
    if call.kind == BWD_WEIGHT:
        grad, source, weight = call.tensors
    else:
        grad, weight, source = call.tensors[0], call.tensors[1], call.tensors[2]
    bias = call.tensors[2] if call.kind == FWD else None
    given = call.tensors[0]
    check_dtypes(call)
    if call.kind == FWD:
        check_forward(call, given, weight, bias)
        last = result_is_channels_last(given, weight)
        result = result_layout(forward_sizes(call, given, weight), last)
        x, y = (result, given) if call.transposed else (given, result)
        op = "bwd_input" if call.transposed else "fwd"
    else:
        check_backward(call, grad, source, weight)
        last = result_is_channels_last(source, weight)
        if call.kind == BWD_INPUT:
            source = result_layout(source.sizes, last)
            op = "fwd" if call.transposed else "bwd_input"
        else:
            weight = result_layout(weight.sizes, last)
            op = "bwd_weight"
        x, y = (grad, source) if call.transposed else (source, grad)
    return Problem(op, DTYPE_NAMES[call.dtypes[0]], x, weight, y, call.stride, call.padding, call.dilation,
                   call.groups, bias, call.tf32)


def check_dtypes(call: Call):
    if call.dtypes[0] not in DTYPE_NAMES:
        raise Uncovered(f"dtype code {call.dtypes[0]} is not one of float16, bfloat16, float32")
    if any(dtype not in (None, call.dtypes[0]) for dtype in call.dtypes):
        raise Uncovered("the tensors' dtypes differ")


def check_forward(call: Call, given: Layout, weight: Layout, bias: Layout | None):
    """Everything that aten would raise for is left to aten."""
    rank = len(call.stride)
    if rank not in (1, 2, 3):
        raise Uncovered(f"the convolution has {rank} spatial dimensions, kernels are for 1, 2 and 3")
    if len(given.sizes) != rank + 2 or len(weight.sizes) != rank + 2:
        raise Uncovered(f"input and weight have {len(given.sizes)} and {len(weight.sizes)} dimensions, expected {rank + 2}")
    check_numbers(call, weight)
    channels, outputs = weight.sizes[1] * call.groups, weight.sizes[0]
    if call.transposed:
        channels, outputs = outputs, channels
    if given.sizes[1] != channels or weight.sizes[0] % call.groups:
        raise Uncovered(f"input has {given.sizes[1]} channels, the weight and groups={call.groups} ask for {channels}")
    if bias is not None and bias.sizes != (outputs,):
        raise Uncovered(f"bias has sizes {bias.sizes}, expected ({outputs},)")
    sizes = forward_sizes(call, given, weight)
    if min(*given.sizes, *weight.sizes, *sizes) < 1:
        raise Uncovered(f"nothing to compute: the output's sizes are {sizes}")


def check_backward(call: Call, grad: Layout, source: Layout, weight: Layout):
    """The gradient must have the sizes of the forward call's output."""
    check_forward(call, source, weight, None)
    expected = forward_sizes(call, source, weight)
    if grad.sizes != expected:
        raise Uncovered(f"grad_output has sizes {grad.sizes}, expected {expected}")


def check_numbers(call: Call, weight: Layout):
    if min(call.stride) < 1 or min(call.dilation) < 1 or min(weight.sizes[2:]) < 1:
        raise Uncovered("stride, dilation and kernel sizes must be positive")
    for extra, stride, dilation in zip(call.output_padding, call.stride, call.dilation):
        if extra and (not call.transposed or extra >= max(stride, dilation)):
            raise Uncovered("output_padding must be smaller than stride or dilation, and 0 unless transposed")


def forward_sizes(call: Call, given: Layout, weight: Layout) -> tuple[int, ...]:
    """Sizes of the forward call's output."""
    spatial, kernel = given.sizes[2:], weight.sizes[2:]
    if call.transposed:
        sizes = map(transposed_size, spatial, kernel, call.stride, call.padding, call.dilation, call.output_padding)
        return (given.sizes[0], weight.sizes[1] * call.groups, *sizes)
    sizes = map(output_size, spatial, kernel, call.stride, call.padding, call.dilation)
    return (given.sizes[0], weight.sizes[0], *sizes)


def slots(call_kind: int, transposed: bool) -> dict[str, int]:
    """Which of the native operator's slots (a 0, b 1, c 2, result 3) holds x, w, y and the bias."""
    if call_kind == FWD:
        names = {"x": 0, "w": 1, "b": 2, "y": 3}
    elif call_kind == BWD_INPUT:
        names = {"y": 0, "w": 1, "x": 3}
    else:
        names = {"y": 0, "x": 1, "w": 3}
    if transposed:
        names["x"], names["y"] = names["y"], names["x"]
    return names
