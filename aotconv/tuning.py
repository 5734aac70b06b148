"""What was measured on a device, as dispatch reads it: winners by problem, costs of variants, aten's time. Standard library only.

Everything here is a pure function of a problem and the table. gen/fit.py makes the numbers; docs/tuning.md says how.
"""

from math import exp, log
from operator import mul
from typing import NamedTuple

from aotconv.problem import Layout, Problem

ATEN = "aten"
NAMES = {1: "1d", 2: "2d", 3: "3d"}
CONTIGUOUS = {rank: tuple(range(rank + 1, -1, -1)) for rank in NAMES}               # innermost dimension first
CHANNELS_LAST = {rank: (1, *range(rank + 1, 1, -1), 0) for rank in NAMES}


def key(p: Problem) -> str | None:
    """The problem as text, for the tuned tier; None for one that is never tuned: an address that is not 16-byte aligned."""
    if min(p.x.align, p.w.align, p.y.align) < 16:
        return None
    numbers = "".join(f"-{letter}{joined(values)}" for letter, values in (
        ("x", p.x.sizes), ("w", p.w.sizes), ("y", p.y.sizes[2:]), ("s", p.stride), ("p", p.padding), ("d", p.dilation)))
    memory = ".".join(map(memory_format, (p.x, p.w, p.y)))
    return f"{p.op}-{p.arithmetic}{numbers}-g{p.groups}-b{int(p.bias is not None)}-{memory}"


def joined(values) -> str:
    return "x".join(map(str, values))


def memory_format(layout: Layout) -> str:
    """c: row-major; l: channels-last; else the strides. A dimension of size 1 has none."""
    rank = len(layout.sizes) - 2
    if dense_in(layout, CONTIGUOUS[rank]):
        return "c"
    if dense_in(layout, CHANNELS_LAST[rank]):
        return "l"
    return joined(stride if size > 1 else 0 for size, stride in zip(layout.sizes, layout.strides))


def dense_in(layout: Layout, order) -> bool:
    """Whether the elements lie without gaps, `order` naming the dimensions from the innermost."""
    step = 1
    for dim in order:
        size = layout.sizes[dim]
        if size > 1:
            if layout.strides[dim] != step:
                return False
            step *= size
    return True


def class_of(p: Problem) -> str:
    """What kind of convolution it is: records, models and margins are kept by it."""
    kernel = p.w.sizes[2:]
    if p.groups > 1:
        return "depthwise" if p.w.sizes[1] == 1 else "grouped"
    if p.w.sizes[1] <= 4:
        return "stem"
    if kernel == p.stride and max(kernel) > 1 and not any(p.padding):
        return "patchify"
    if any(d > 1 and k > 1 for d, k in zip(p.dilation, kernel)):
        return "dilated"
    if max(p.stride) > 1:
        return "strided"
    return {1: "1x1", 3: "3x3"}.get(max(kernel), "other") if min(kernel) == max(kernel) else "other"


# --- models: the logarithm of microseconds is a weighted sum of features ---------------------------------------------

KINDS = {"f16": "half", "bf16": "half"}     # the two 16-bit types take the same time: one is measured, both are served
TILE = 128 * 128                            # output elements that keep one multiprocessor busy
FLOPS_US, BYTES_US, LEAST_US = 6e8, 3.5e6, 2.0
VECTOR = 8                                  # channels that libraries read at once
FEATURES = ("one", "bytes", "pixels", "columns", "channels", "taps", "groups", "bias", "odd in", "odd out", "floor", "idle", "wide", "deep")


def features(p: Problem, multiprocessors: int) -> tuple[float, ...]:
    """FEATURES of a problem: logarithms of its sizes, flags, and three of how it fills a device.

    floor: of the least time that arithmetic or memory allow; idle: of how far it is from filling the multiprocessors;
    wide and deep: of how far its channels, and its sums, are from filling a tile.
    """
    v = p.values
    columns, channels = (v["C_in"], v["C_out"]) if p.op == "bwd_input" else (v["C_out"], v["C_in"])
    outputs = v["pixels"] * v["phases"] * columns * v["groups"]
    if p.op == "bwd_weight":
        outputs = columns * channels * v["taps"] * v["groups"]
    moved = p.bytes
    return (
        1.0, log(moved), log(v["pixels"]), log(columns), log(channels), log(v["taps"]), log(v["groups"]), float(v["has_bias"]),
        float(v["C_in"] % VECTOR > 0), float(v["C_out"] % VECTOR > 0), log(max(p.flops / FLOPS_US, moved / BYTES_US) + LEAST_US),
        log(1 + multiprocessors * TILE / outputs), log(1 + 64 / columns), log(1 + 64 / (channels * v["taps"])),
    )


def kind_of(p: Problem) -> str:
    return KINDS.get(p.arithmetic, p.arithmetic)


def group_of(p: Problem) -> str:
    """Problems for which aten's time is one model: op, rank, class, x's memory format (s: neither), kind of arithmetic."""
    memory = memory_format(p.x)
    return f"{p.op} {NAMES[p.rank]} {class_of(p)} {memory if len(memory) == 1 else 's'} {kind_of(p)}"


def cost_name(variant: str) -> str:
    """A variant's name in the models: its dtype's kind in place of its dtype."""
    kernel, dtype, config = variant.split("-")
    return f"{kernel}-{KINDS.get(dtype, dtype)}-{config}"


class Expected(NamedTuple):
    """aten's predicted microseconds, and what a kernel's may be at most for it to serve."""

    us: float
    limit: float


def corrected(weights, estimate_us: float, seen: tuple[float, ...]) -> float:
    """An estimate under the weights of a variant; itself where there are none."""
    if weights is None:
        return estimate_us
    return exp(sum(map(mul, weights, seen)) + weights[-1] * log(estimate_us))


class Tuning:
    """A table's measurements, for a device."""

    def __init__(self, table: dict, multiprocessors: int):
        self.winners = table.get("tuned", {}).get(str(multiprocessors), {})
        self.costs, self.aten, self.multiprocessors = table.get("costs", {}), table.get("aten", {}), multiprocessors

    def winner(self, problem: Problem) -> str | None:
        """The variant that was fastest on this very problem, ATEN, or None where it was not measured."""
        return self.winners.get(key(problem)) if self.winners else None

    def weights(self, variant: str) -> list[float] | None:
        """What corrects a family's estimate for the variant; None where nothing was measured."""
        return self.costs.get(cost_name(variant))

    def corrected_us(self, artifact, estimate_us: float, seen: tuple[float, ...]) -> float:
        """A family's estimate, corrected by what was measured of the variant; the estimate itself where nothing was."""
        return corrected(self.weights(artifact.variant), estimate_us, seen)

    def aten_us(self, problem: Problem, seen: tuple[float, ...]) -> "Expected | None":
        """aten's predicted time; None where such problems were not measured."""
        model = self.aten.get(group_of(problem)) if self.aten else None
        if model is None:
            return None
        us = exp(sum(map(mul, model["weights"], seen)))
        return Expected(us, us * exp(-model["margin"]))
