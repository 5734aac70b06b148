"""Matrix -> candidates: for each kernel and dtype, every config that could be compiled. Rejects nothing."""

from gen.matrix import Entry, Matrix, Seed
from gen.variants import Config, Kernel, Variant

SEED_TILE = ("m", "n", "k")  # the tile that the seed's configs speak of
DEPTHWISE = ("dw", "dwany")


def candidates(matrix: Matrix) -> list[Variant]:
    """Every candidate once, kernels in the matrix's order, configs in the order of `configs_for`."""
    return [Variant(kernel, dtype, config) for kernel, entry in matrix.kernels.items()
            for dtype, shipped in entry.ship for config in configs_for(matrix.seed, kernel, entry, shipped)]


def configs_for(seed: Seed, kernel: Kernel, entry: Entry, shipped: tuple[Config, ...]) -> list[Config]:
    """The shipped configs, then the seed's scaled to each class of problems, then the small tiles; each once."""
    found = list(shipped)
    if all(tuple(letter for letter, _ in config.tile) == SEED_TILE for config in shipped):
        found += [scaled(seed, row, sizes) for sizes in seed.classes for row in seed.configs]
        found += map(seed_config, seed.small)
    elif kernel.layout in DEPTHWISE:
        found += depthwise(seed)
    return list(dict.fromkeys(found))


def depthwise(seed: Seed) -> list[Config]:
    """The seed's depthwise configs, and each with a smaller batch: pixels are BLOCK_N * BLOCK_L, no pipeline stages."""
    rows = [(batch, *row[1:]) for row in seed.depthwise for batch in (row[0], *seed.depthwise_batches)]
    return [Config((("m", batch * length), ("n", channels)), warps, 1) for batch, length, channels, _, warps in rows]


def scaled(seed: Seed, row: tuple[int, ...], sizes: tuple[int, ...]) -> Config:
    """The seed's rule: no block is larger than its dimension needs, and a warp has enough accumulators."""
    *blocks, stages, warps = row
    m, n, k = (max(min(block, next_power_of_2(size)), seed.min_block) for block, size in zip(blocks, sizes))
    return seed_config((m, n, k, stages, min(warps, m * n // seed.accumulators_per_warp)))


def seed_config(row: tuple[int, ...]) -> Config:
    """A Config from BLOCK_M, BLOCK_N, BLOCK_K, stages, warps."""
    *blocks, stages, warps = row
    return Config(tuple(zip(SEED_TILE, blocks)), warps, stages)


def next_power_of_2(size: int) -> int:
    return 1 << (size - 1).bit_length()
