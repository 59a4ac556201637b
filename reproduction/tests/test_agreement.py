"""Agreement of estimates with the measured truth, by hand."""

import numpy as np
import pytest

from fedegoists.benefit import BenefitEstimate
from fedegoists.errors import SettingsError
from fedegoists.training.benefit_report import stability
from reproduction.agreement import agreement, agreement_section
from reproduction.measured_pairs import MeasuredBenefit


def test_agreement_by_hand():
    gains = np.array([[0, 1.0, 2.0], [3.0, 0, 4.0], [5.0, 6.0, 0]])
    exact = agreement(gains, gains, gains > 2.5, gains > 1.5)
    assert exact.spearman == pytest.approx(1.0)
    assert exact.kendall == pytest.approx(1.0)
    assert exact.precision == 1.0
    assert exact.recall == pytest.approx(4 / 5)
    turned = agreement(7.0 - gains - 7.0 * np.eye(3), gains, gains > 9, gains > 0)
    assert turned.spearman == pytest.approx(-1)
    assert np.isnan(turned.precision)
    assert turned.recall == 0
    assert stability([gains, gains]) == 1
    # Equal weights have no order, by either measure; of what was not measured nothing is known.
    flat = agreement(np.ones((3, 3)), gains, gains > 9, gains > 0)
    assert (flat.spearman, flat.kendall) == (0, 0)
    nothing = agreement(gains, np.full((3, 3), np.nan), gains > 0, gains > 9)
    assert np.isnan([nothing.spearman, nothing.kendall]).all()
    with pytest.raises(SettingsError, match="beside"):
        agreement(gains, gains[:2, :2], gains > 0, gains > 0)


@pytest.mark.parametrize("private", [False, True])
def test_measuring_without_noise_is_said(private):
    runs = np.zeros((2, 1, 2, 2))
    estimate = BenefitEstimate(("a", "b"), "hypernetwork", runs, runs, runs[0, 0])
    truth = MeasuredBenefit(("a", "b"), np.ones((2, 2)), np.zeros((2, 2, 2)))
    lines = agreement_section({"hypernetwork": {"0": estimate}}, {"0": truth}, private=private)
    assert ("gradients without clipping or noise" in "\n".join(lines)) == private
