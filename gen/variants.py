"""Kernels, configs and variants: what can be rendered and compiled, and their names.

A name is the variant: `parse_variant(v.name) == v`. Grammar, lower case, at most 100 bytes:

    kernel   fwd2d_cl_k3          op, rank, structure, pins (k3: kernel 3 in every dimension), _i64 for 64-bit indices
    config   m128n64k32w4s3       tile sizes by letter, then warps and stages
    variant  fwd2d_cl_k3-bf16-m128n64k32w4s3
    artifact variant + target     files obj/<target>/<variant>.cubin
"""

import re
from dataclasses import dataclass

from aotconv.problem import DIMS

DTYPES = ("f16", "bf16", "f32", "tf32")
NAME_LIMIT = 100
OP_TAGS = {"fwd": "fwd", "bwd_input": "bwdx", "bwd_weight": "bwdw"}
TAG_OPS = {tag: op for op, tag in OP_TAGS.items()}


@dataclass(frozen=True, order=True)
class Kernel:
    """One rendered source: a template with its structure chosen.

    layout: which memory formats it reads (`cl`, `clodd`, `flat`, `any` ...). pin: kernel size that is a literal in
    every dimension, 0 for a run-time one.
    """

    op: str
    rank: int
    layout: str
    pin: int = 0
    index: str = "i32"

    @property
    def name(self) -> str:
        pin = f"_k{self.pin}" if self.pin else ""
        wide = "_i64" if self.index == "i64" else ""
        return f"{OP_TAGS[self.op]}{self.rank}d_{self.layout}{pin}{wide}"

    @property
    def dims(self) -> tuple[str, ...]:
        return DIMS[self.rank]

    @property
    def pins(self) -> dict[str, int]:
        return {f"kernel_{d}": self.pin for d in self.dims} if self.pin else {}


@dataclass(frozen=True, order=True)
class Config:
    """Numbers chosen at compile time: tile sizes by letter (m: BLOCK_M ...), warps, pipeline stages."""

    tile: tuple[tuple[str, int], ...]
    warps: int
    stages: int

    @property
    def name(self) -> str:
        return "".join(f"{letter}{size}" for letter, size in self.tile) + f"w{self.warps}s{self.stages}"

    def __getitem__(self, letter: str) -> int:
        return dict(self.tile)[letter]

    @property
    def constants(self) -> dict[str, int]:
        """The kernel's tl.constexpr arguments that the tile sets."""
        return {f"BLOCK_{letter.upper()}": size for letter, size in self.tile}


@dataclass(frozen=True, order=True)
class Variant:
    """Kernel + dtype + config: what can be compiled."""

    kernel: Kernel
    dtype: str
    config: Config

    @property
    def name(self) -> str:
        return f"{self.kernel.name}-{self.dtype}-{self.config.name}"


def parse_kernel(name: str) -> Kernel:
    """The Kernel with this name; ValueError when it is none."""
    match = re.fullmatch(r"([a-z]+)([123])d_([a-z]+)(?:_k(\d+))?(_i64)?", name)
    if not match or match[1] not in TAG_OPS:
        raise ValueError(f"{name!r} is no kernel name; one looks like fwd2d_cl_k3 or bwdx1d_any_i64")
    op, rank, layout, pin, wide = match.groups()
    return Kernel(TAG_OPS[op], int(rank), layout, int(pin or 0), "i64" if wide else "i32")


def parse_config(name: str) -> Config:
    """The Config with this name; ValueError when it is none."""
    match = re.fullmatch(r"((?:[a-z]\d+)+)w(\d+)s(\d+)", name)
    if not match:
        raise ValueError(f"{name!r} is no config name; one looks like m128n64k32w4s3")
    tile = tuple((letter, int(size)) for letter, size in re.findall(r"([a-z])(\d+)", match[1]))
    return Config(tile, int(match[2]), int(match[3]))


def parse_variant(name: str) -> Variant:
    """The Variant with this name; ValueError when it is none."""
    parts = name.split("-")
    if len(parts) != 3 or parts[1] not in DTYPES:
        raise ValueError(f"{name!r} is no variant name; one looks like fwd2d_cl_k3-bf16-m128n64k32w4s3")
    return Variant(parse_kernel(parts[0]), parts[1], parse_config(parts[2]))
