"""A name is the variant: it reads back, fits, and is nobody else's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotconv.problem import OPS
from gen.candidates import candidates
from gen.matrix import load_matrix
from gen.variants import DTYPES, NAME_LIMIT, Config, Kernel, Variant, parse_config, parse_kernel, parse_variant

LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
KERNELS = st.builds(Kernel, st.sampled_from(OPS), st.sampled_from((1, 2, 3)), LETTERS, st.integers(0, 15),
                    st.sampled_from(("i32", "i64")))
TILES = st.lists(st.tuples(st.sampled_from("bcdghkmn"), st.integers(1, 1024)), min_size=1, max_size=4).map(tuple)
CONFIGS = st.builds(Config, TILES, st.integers(1, 16), st.integers(1, 8))


@given(st.builds(Variant, KERNELS, st.sampled_from(DTYPES), CONFIGS))
def test_any_variant_reads_back(variant):
    assert parse_variant(variant.name) == variant
    assert variant.name == variant.name.lower() and len(variant.name.encode()) <= NAME_LIMIT


def test_whole_matrix():
    everything = candidates(load_matrix())
    names = {variant.name: variant for variant in everything}
    assert len(names) == len(everything) == len({name.casefold() for name in names})
    assert all(parse_variant(name) == variant for name, variant in names.items())
    assert max(len(name.encode()) for name in names) <= NAME_LIMIT


def test_examples():
    assert parse_kernel("fwd2d_cl_k3") == Kernel("fwd", 2, "cl", 3)
    assert parse_kernel("bwdx1d_any_i64") == Kernel("bwd_input", 1, "any", 0, "i64")
    assert parse_config("m128n64k32w4s3") == Config((("m", 128), ("n", 64), ("k", 32)), 4, 3)


@pytest.mark.parametrize("name", ["", "fwd2d_cl", "fwd2d_cl-bf16", "fwd2d_cl-f64-m16w1s1", "fwd4d_cl-f16-m16w1s1", "fwd2d_cl-f16-m16s1w1",
                                  "Fwd2d_cl-f16-m16w1s1", "fwd2d_cl-f16-m16w1s1-sm_80"])
def test_no_names(name):
    with pytest.raises(ValueError, match="looks like"):
        parse_variant(name)
