"""Tuned entries that are out of date: an untimed kernel that is expected to be faster drops them."""

import pytest

from gen import untimed
from gen.table import winners


class Ranks:
    """A library that expects `us` of one variant of `kernel`."""

    def __init__(self, us, kernel="fwd2d_new"):
        self.row = (us, kernel, type("Artifact", (), {"variant": f"{kernel}-bf16-m16w1s1"}))

    def ranked(self, problem):
        return [self.row, (us := self.row[0] + 1, "fwd2d_old", self.row[2])]


@pytest.mark.parametrize("us, dropped", [(9.6, True), (9.8, False), (12.0, False)])
def test_an_untimed_kernel_must_be_clearly_faster(us, dropped):
    assert untimed.is_superseded(Ranks(us), None, {"aten": 10.0, "old": 11.0, "aten_contiguous": 1.0}) is dropped


def test_a_timed_kernel_or_a_64_bit_one_drops_nothing():
    assert not untimed.is_superseded(Ranks(1.0), None, {"aten": 10.0, "fwd2d_new-bf16-m16w1s1": 12.0})
    assert not untimed.is_superseded(Ranks(1.0, "fwd2d_any_i64"), None, {"aten": 10.0})


def test_dropped_problems_have_no_winner():
    times = {"132": {"p": {"aten": 2.0, "a": 1.0}, "q": {"aten": 2.0, "a": 1.0}}}
    assert winners(times, {"a"}, {"132": {"q"}}) == {"132": {"p": "a"}}
