"""One convolution call through the public operators on a GPU, judged against float64. Shared by `check` and `fuzz`.

Needs torch alone. Strict mode serves it, so what is judged is a kernel's work and never aten's.
"""

from dataclasses import dataclass, field, replace

import torch

from aotconv import geometry, operators
from aotconv.report import KINDS, call_of
from gen.reference import convolve, error_over_bound
from gen.sampled import at_places, places

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "tf32": torch.float32}
SAMPLES = {"fwd": 1000, "bwd_input": 1000, "bwd_weight": 24}
WHOLE_FLOPS = 2e8       # below it the whole reference is computed


@dataclass(frozen=True)
class Exercise:
    """A call as a user makes it. mask: what of (grad_input, grad_weight) a backward call computes; None: forward.

    format: contiguous, channels_last, or sliced (every tensor a view with holes). offset: elements that the input
    starts after an aligned address.
    """

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    bias: bool = False
    mask: tuple[bool, bool] | None = None
    dtype: str = "bf16"
    format: str = "contiguous"
    offset: int = 0
    integers: bool = False
    seed: int = field(default=0, compare=False)

    @property
    def lists(self):
        extra = self.output_padding or (0,) * len(self.stride)
        return list(self.stride), list(self.padding), list(self.dilation), self.transposed, list(extra), self.groups


@dataclass(frozen=True)
class Verdict:
    """op, the variant that served, and the largest error over the bound; `fault` says what is wrong, None when right."""

    op: str
    variant: str | None
    error: float
    fault: str | None


def exercise(e: Exercise) -> list[Verdict]:
    """Run the call and judge each result."""
    torch.backends.cudnn.allow_tf32 = e.dtype == "tf32"
    generator = torch.Generator("cuda").manual_seed(e.seed)
    make = lambda sizes: tensor(sizes, e, generator)
    x, w = make(e.x), make(e.w)
    out = e.w[1] * e.groups if e.transposed else e.w[0]
    bias = tensor((out,), e, generator) if e.bias else None
    if e.mask is None:
        y = torch.ops.aotconv.convolution(x, w, bias, *e.lists)
        return [judge(e, "fwd", (x, w, bias), x, w, bias, y)]
    sizes = geometry.forward_sizes(without_tensors(e), geometry.Layout(e.x, e.x), geometry.Layout(e.w, e.w))
    g = make(sizes)
    grads = torch.ops.aotconv.convolution_backward(g, x, w, None, *e.lists, [*e.mask, False])
    verdicts = []
    if e.mask[0]:
        verdicts.append(judge(e, "bwd_input", (g, w, x), x, w, None, grads[0]))
    if e.mask[1]:
        verdicts.append(judge(e, "bwd_weight", (g, x, w), x, w, None, grads[1]))
    return verdicts


def without_tensors(e: Exercise) -> geometry.Call:
    """The forward call, before there are tensors."""
    return geometry.read_key([*operators.words_of(geometry.FWD, 0, *e.lists), 0, 0])


def tensor(sizes, e: Exercise, generator):
    """Random values, or integers from -3 to 3, in the exercise's memory format."""
    if e.integers:
        values = torch.randint(-3, 4, sizes, device="cuda", generator=generator).to(DTYPES[e.dtype])
    else:
        values = torch.randn(sizes, device="cuda", generator=generator).to(DTYPES[e.dtype])
    if e.format == "channels_last" and len(sizes) in (4, 5):
        values = values.to(memory_format=torch.channels_last if len(sizes) == 4 else torch.channels_last_3d)
    elif e.format == "channels_last" and len(sizes) == 3:
        values = values.transpose(1, 2).contiguous().transpose(1, 2)
    elif e.format == "sliced":
        roomy = torch.full((*sizes[:-1], 2 * sizes[-1] + 1), float("nan"), dtype=values.dtype, device="cuda")
        roomy[..., 1::2] = values
        values = roomy[..., 1::2]
    return shifted(values, e.offset) if e.offset else values


def shifted(values, offset: int):
    """The same tensor `offset` elements after an aligned address."""
    room = sum((n - 1) * s for n, s in zip(values.shape, values.stride())) + 1
    buffer = torch.full((room + offset,), float("nan"), dtype=values.dtype, device=values.device)
    view = buffer.as_strided(values.shape, values.stride(), offset)
    view.copy_(values)
    return view


def judge(e: Exercise, op: str, slots, x, w, bias, result) -> Verdict:
    """The result against float64: whole where that is cheap, else at some thousand places."""
    words = operators.words_of(KINDS[op], operators.flags_of(x), *e.lists)
    problem = geometry.problem_of(call_of(words, x.device.index, op, x, w, bias))
    if op != "fwd":
        grad = geometry.Layout(tuple(slots[0].shape), tuple(slots[0].stride()))
        role = "x" if e.transposed else "y"
        problem = replace(problem, **{role: grad})
    names = geometry.slots(KINDS[op], e.transposed)
    operands = {name: slots[slot] for name, slot in names.items() if slot != 3 and name != "b"}
    choice = operators.runtime.choose(x.device.index, problem)
    variant = choice.artifact.variant if choice.artifact else None
    value, reference, magnitude = compared(e, problem, operands, bias, result)
    if e.integers:
        wrong = (value != reference.to(value.dtype)).sum().item()
        return Verdict(op, variant, 0.0, f"{wrong} of {value.numel()} integers differ" if wrong else None)
    error = error_over_bound(value, reference, magnitude, problem.values["reduction"], e.dtype == "tf32")
    return Verdict(op, variant, error, None if error <= 1 else f"{error:.3g} of the bound")


def compared(e: Exercise, problem, operands, bias, result):
    """(values of the result, reference, magnitude) where they are compared."""
    if problem.flops <= WHOLE_FLOPS:
        absolute = {name: t.double().abs() for name, t in operands.items()}
        return (result, convolve(problem.op, problem, **operands, bias=bias),
                convolve(problem.op, problem, **absolute, bias=None if bias is None else bias.abs()))
    index = places(result.shape, SAMPLES[problem.op], torch.Generator("cuda").manual_seed(e.seed))
    reference, magnitude = at_places(problem.op, problem, index, **operands, bias=bias)
    return result[tuple(index.T)], reference, magnitude
