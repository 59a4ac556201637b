"""Orders of samples: the same for the same seed, and never more memory than said."""

import numpy as np

from fedegoists.federation.batches import Orders


def test_orders_at_hand_take_no_more_memory_than_said():
    orders = Orders(most_bytes=8 * 250)
    drawn = [orders(100, seed, 0) for seed in range(5)]
    assert orders.bytes == 8 * 200
    assert orders(100, 4, 0) is drawn[4]
    again = orders(100, 0, 0)
    assert again is not drawn[0]
    assert np.array_equal(again, drawn[0])
    assert sorted(orders(1000, 0, 0)) == list(range(1000))  # larger than all that may be kept
    assert orders.bytes == 0
