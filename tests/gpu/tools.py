"""Integers, views and comparisons for the tests on a GPU."""

import torch
import torch.nn.functional as F

import aotconv

OURS = {1: aotconv.conv1d, 2: aotconv.conv2d, 3: aotconv.conv3d}
ATEN = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def integers(*sizes, dtype=torch.float16, most=3, seed=0):
    """Values from -most to most."""
    generator = torch.Generator("cuda").manual_seed(seed + sum(sizes))
    return torch.randint(-most, most + 1, sizes, generator=generator, device="cuda", dtype=torch.int8).to(dtype)


def outcome(call, *arguments, **named):
    """(sizes, strides, dtype) of the result, or the type of the exception."""
    try:
        y = call(*arguments, **named)
    except Exception as error:
        return type(error)
    return y.shape, y.stride(), y.dtype


def served(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1) -> str:
    """The tier that answers."""
    return aotconv.explain(x, w, bias, stride, padding, dilation, False, 0, groups).tier


def exact(x, w, bias=None, *rest):
    """The convolution in float64 on the CPU, in x's dtype."""
    double = [None if t is None else t.double().cpu() for t in (x, w, bias)]
    return ATEN[w.dim() - 2](*double, *rest).to(x.dtype)


def check(x, w, bias=None, *rest, ours=True):
    """Exactly right for integers, laid out as aten's result, and served by a kernel of ours."""
    y = OURS[w.dim() - 2](x, w, bias, *rest)
    theirs = ATEN[w.dim() - 2](x, w, bias, *rest)
    assert (y.shape, y.stride(), y.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)
    assert torch.equal(y.cpu(), exact(x, w, bias, *rest))
    if ours:
        batched = x if x.dim() == w.dim() else x.unsqueeze(0)
        assert served(batched, w, bias, *rest) != "aten"
    return y


# ---- the same values in other places ----------------------------------------------------------------------------------


def contiguous(t):
    return t.contiguous()


def channels_last(t):
    return t.contiguous(memory_format=LAST[t.dim() - 2]) if t.dim() > 3 else t.movedim(1, -1).contiguous().movedim(-1, 1)


def sliced(t):
    """Every second element of a tensor twice as wide."""
    wide = torch.full((*t.shape[:-1], 2 * t.shape[-1]), float("nan"), dtype=t.dtype, device=t.device)
    wide[..., ::2] = t
    return wide[..., ::2]


def permuted(t):
    """Dimensions stored in reverse."""
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def misaligned(t):
    """One element past an aligned address."""
    buffer = torch.full((t.numel() + 1,), float("nan"), dtype=t.dtype, device=t.device)
    buffer[1:] = t.flatten()
    return buffer[1:].view(t.shape)


def of_bigger(t):
    """Some of the channels and images of a channels-last tensor inside NaNs."""
    sizes = (t.shape[0] + 1, t.shape[1] + 8, *t.shape[2:])
    big = channels_last(torch.full(sizes, float("nan"), dtype=t.dtype, device=t.device))
    view = big[1:, 8:]
    view.copy_(t)
    return view


VIEWS = (contiguous, channels_last, sliced, permuted, misaligned, of_bigger)
