"""Fixed point: what goes in comes out to rounding, and nothing wraps around unnoticed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.federation.secure_sums.fixed_point import (
    OutOfRangeError,
    as_ring,
    as_tensor,
    decode,
    encode,
    largest,
)

FITTING = st.lists(st.floats(-127, 127, width=32), min_size=1, max_size=20)


@given(FITTING, st.floats(0, 1))
def test_numbers_come_back_to_rounding(values, weight):
    given_ = torch.tensor(values, dtype=torch.float32)
    back = decode(encode(given_, weight))
    assert (back - weight * given_.double()).abs().max() <= 2.0**-25


@given(FITTING, st.integers(2, 40))
def test_a_weighted_sum_of_numbers_in_range_is_in_range(values, members):
    given_ = torch.tensor(values)
    parts = [encode(given_, 1 / members) for _ in range(members)]
    total = decode(sum(parts[1:], parts[0]))
    assert (total - given_.double()).abs().max() <= members * 2.0**-25


@pytest.mark.parametrize("bad", [127.1, -128.0, 1e9, float("nan"), float("inf")])
@pytest.mark.parametrize("weight", [1.0, 1e-6])
def test_a_number_out_of_range_is_refused_whatever_its_weight(bad, weight):
    with pytest.raises(OutOfRangeError, match="clip"):
        encode(torch.tensor([0.0, bad]), weight)


def test_fewer_fraction_bits_have_a_larger_range():
    assert largest(16) == 32767
    assert decode(encode(torch.tensor([3e4]), 1.0, bits=16), bits=16).item() == 3e4


def test_weights_may_differ_by_coordinate():
    both = encode(torch.tensor([1.0, 1.0]), torch.tensor([0.25, 0.5]))
    assert decode(both).tolist() == [0.25, 0.5]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_the_bits_of_a_tensor_are_those_of_the_ring(numbers):
    ring = np.array(numbers, np.uint32)
    assert as_tensor(ring).dtype == torch.int32
    assert np.array_equal(as_ring(as_tensor(ring)), ring)
