"""The yardsticks themselves: a yardstick that is wrong measures nothing."""

import numpy as np
import pytest
from scipy.optimize import brentq

from fedegoists.learning.datasets import load
from reproduction.repeated_runs import by_seed
from reproduction.yardstick_study import (
    PRODUCT,
    TABLES_COMPARED,
    chosen_cox,
    fitted_outputs,
    ridge_cox,
    score,
    write_silos,
    yardstick_page,
    yardstick_rows,
)

pytest.importorskip("sklearn")


def test_cox_regression_of_two_patients_by_hand():
    # −log(eʷ / (eʷ + 1)) + penalty/2 w² has the derivative −1 / (1 + eʷ) + penalty · w.
    weight = ridge_cox(np.array([[1.0], [0.0]]), np.array([1.0, -2.0]), 0.5)
    expected = brentq(lambda w: 0.5 * w - 1 / (1 + np.exp(w)), 0, 5)
    assert weight == pytest.approx([expected], abs=1e-4)


def test_patients_with_the_same_time_are_at_risk_together():
    x = np.array([[1.0], [0.0], [2.0]])
    targets = np.array([3.0, 3.0, -3.0])
    order = [2, 0, 1]
    assert ridge_cox(x, targets, 1.0) == pytest.approx(
        ridge_cox(x[order], targets[order], 1.0), abs=1e-4
    )
    # Both events are chosen among all three: Σ (x − mean) over events = penalty · w.
    w = ridge_cox(x, targets, 1.0)[0]
    mean = (x[:, 0] * np.exp(w * x[:, 0])).sum() / np.exp(w * x[:, 0]).sum()
    assert 1.0 + 0.0 - 2 * mean == pytest.approx(w, abs=1e-4)


def test_noise_alone_gets_the_strongest_penalty_or_near():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 30))
    signal = np.where(rng.random(60) < 0.7, 1, -1) * np.exp(
        -3 * x[:, 0] + 0.1 * rng.normal(size=60)
    )
    assert chosen_cox(x, signal) < 1000
    risks = fitted_outputs("survival", x, signal, x, "usual")
    assert score("survival", risks, signal, 1.0) > 0.9


@pytest.mark.parametrize("name", [name for name, one in TABLES_COMPARED.items() if one.maker])
def test_tables_become_silos(name, tmp_path):
    table = TABLES_COMPARED[name]
    write_silos(table, tmp_path)
    data = load(str(tmp_path), seed=0)
    assert len(data.silos) == table.silos
    assert {"mse": "regression", "AUC": "binary", "accuracy": "classification"}[
        table.metric
    ] == data.task


def test_a_comparison_of_the_same_samples(tmp_path):
    rows = yardstick_rows("diabetes", tmp_path, (0, 1))
    alone, usual = (by_seed(rows, model, "local") for model in (PRODUCT, "usual penalty"))
    for seed in (0, 1):
        assert alone[seed].keys() == usual[seed].keys()
        for name, value in alone[seed].items():
            # Two ridge regressions of the same rows, in the units of the target.
            assert value == pytest.approx(usual[seed][name], rel=0.25)
    again = yardstick_rows("diabetes", tmp_path, (0, 1), known=[r for r in rows if r.seed == 1])
    assert {row.seed for row in again} == {1}
    page = yardstick_page(rows, "origin")
    assert "| diabetes progression, four silos | mse | 2 | " in page
