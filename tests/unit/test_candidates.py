"""Candidates: the seed's lists, scaled by its rule, for the kernels that they speak of."""

from gen.candidates import candidates, scaled
from gen.matrix import load_matrix
from gen.variants import parse_config, parse_kernel

MATRIX = load_matrix()


def names(kernel: str) -> set[str]:
    return {v.config.name for v in candidates(MATRIX) if v.kernel == parse_kernel(kernel) and v.dtype == "bf16"}


def test_the_seed_scales_its_configs():
    """Blocks shrink to the next power of two of the size, at least 16, and warps to their accumulators."""
    assert scaled(MATRIX.seed, (128, 128, 64, 3, 8), (1568, 512, 512)) == parse_config("m128n128k64w8s3")
    assert scaled(MATRIX.seed, (1024, 16, 16, 1, 8), (512, 6, 5)) == parse_config("m512n16k16w8s1")
    assert scaled(MATRIX.seed, (64, 64, 32, 2, 4), (512, 6, 5)) == parse_config("m64n16k16w4s2")


def test_every_seed_config_is_a_candidate():
    found = names("fwd2d_cl_k3")
    for m, n, k, stages, warps in MATRIX.seed.configs:
        config = scaled(MATRIX.seed, (m, n, k, stages, warps), (100352, 512, 512))
        assert config.name in found or (config["m"], config["n"]) == (1024, 16)


def test_depthwise_has_the_seeds_15_and_small_batches():
    found = names("fwd1d_dw")
    assert len(MATRIX.seed.depthwise) == 15
    for batch, length, channels, _, warps in MATRIX.seed.depthwise:
        for block in (batch, 1, 2, 4):
            assert f"m{block * length}n{channels}w{warps}s1" in found
