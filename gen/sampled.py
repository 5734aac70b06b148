"""A convolution's result at some thousand places, in float64: a reference for results too large to compute whole.

Needs torch alone. Corners and edges are always among the places. Checked against gen/reference.py.
"""

import itertools

import torch


def places(sizes, count: int, generator) -> torch.Tensor:
    """(count + corners, dimensions) indices into a tensor of `sizes`."""
    device = generator.device
    columns = [torch.randint(0, size, (count,), device=device, generator=generator) for size in sizes]
    corners = list(itertools.product(*[(0, size - 1) for size in sizes]))
    return torch.cat([torch.stack(columns, 1), torch.tensor(corners, device=device)])


def at_places(op, p, index, x=None, w=None, y=None, bias=None):
    """(values, values of the absolute operands) of the computed tensor at `index`, in float64."""
    gather = {"fwd": gather_forward, "bwd_input": gather_input, "bwd_weight": gather_weight}[op]
    value, magnitude = gather(p, index, *[t for t in (x, w, y) if t is not None])
    if bias is not None:
        value, magnitude = value + bias.double()[index[:, 1]], magnitude + bias.double().abs()[index[:, 1]]
    return value, magnitude


def taps(p):
    return itertools.product(*map(range, p.w.sizes[2:]))


def add(total, products):
    """Both sums at once."""
    return total[0] + products.sum(-1), total[1] + products.abs().sum(-1)


def gather_forward(p, index, x, w):
    channels, outputs = p.w.sizes[1], p.w.sizes[0] // p.groups
    group = index[:, 1] // outputs
    wanted = group[:, None] * channels + torch.arange(channels, device=index.device)
    total = (0.0, 0.0)
    for tap in taps(p):
        at, inside = [], torch.ones_like(group, dtype=torch.bool)
        for d, k in enumerate(tap):
            i = index[:, 2 + d] * p.stride[d] - p.padding[d] + k * p.dilation[d]
            inside &= (i >= 0) & (i < p.x.sizes[2 + d])
            at.append(i.clamp(0, p.x.sizes[2 + d] - 1)[:, None])
        seen = x[(index[:, :1], wanted, *at)].double() * inside[:, None]
        total = add(total, seen * w[(index[:, 1], slice(None), *tap)].double())
    return total


def gather_input(p, index, w, y):
    channels, outputs = p.w.sizes[1], p.w.sizes[0] // p.groups
    group, column = index[:, 1] // channels, index[:, 1] % channels
    wanted = group[:, None] * outputs + torch.arange(outputs, device=index.device)
    total = (0.0, 0.0)
    for tap in taps(p):
        at, inside = [], torch.ones_like(group, dtype=torch.bool)
        for d, k in enumerate(tap):
            moved = index[:, 2 + d] + p.padding[d] - k * p.dilation[d]
            o = torch.div(moved, p.stride[d], rounding_mode="floor")
            inside &= (moved % p.stride[d] == 0) & (o >= 0) & (o < p.y.sizes[2 + d])
            at.append(o.clamp(0, p.y.sizes[2 + d] - 1)[:, None])
        seen = y[(index[:, :1], wanted, *at)].double() * inside[:, None]
        total = add(total, seen * w[(wanted, column[:, None], *tap)].double())
    return total


def gather_weight(p, index, x, y):
    channels, outputs = p.w.sizes[1], p.w.sizes[0] // p.groups
    sums = [weight_at(p, place, place[0] // outputs * channels + place[1], x, y) for place in index.tolist()]
    return torch.stack([s[0] for s in sums]), torch.stack([s[1] for s in sums])


def weight_at(p, place, channel, x, y):
    """One weight's gradient: both tensors cut to the windows that meet."""
    cut_x, cut_y = [], []
    for d, k in enumerate(place[2:]):
        shift, s = k * p.dilation[d] - p.padding[d], p.stride[d]
        first = max(-(shift // s), 0)
        last = min((p.x.sizes[2 + d] - 1 - shift) // s, p.y.sizes[2 + d] - 1)
        cut_y.append(slice(first, last + 1))
        cut_x.append(slice(first * s + shift, last * s + shift + 1, s) if last >= first else slice(0, 0))
    if any(c.stop <= c.start for c in cut_y):
        zero = torch.zeros((), dtype=torch.float64, device=x.device)
        return zero, zero
    products = x[(slice(None), channel, *cut_x)].double() * y[(slice(None), place[0], *cut_y)].double()
    return products.sum(), products.abs().sum()
