"""The linear program over known coalitions."""

import numpy as np

from fedegoists.coalitions.exact.restricted_master import RestrictedMaster
from tests.instances import random_graphs


def test_a_linear_program_without_time_keeps_its_prices(capfd):
    benefit, _ = random_graphs(60, 1.0, 0.1, seed=0)
    master = RestrictedMaster(benefit.weights + benefit.weights.T, 0.0)
    rng = np.random.default_rng(0)
    for _ in range(3):
        master.add(rng.random(60) < 0.3)
    value, prices = master.solve(10.0)
    for _ in range(3000):
        master.add(rng.random(60) < 0.3)
    later, same = master.solve(0.0)
    assert later >= value
    assert len(same) == 60
    assert (same >= 0).all()
    if later == np.inf:
        assert (same == prices).all()
    assert capfd.readouterr().err == ""
