"""The report on a learned benefit graph."""

import numpy as np
import pytest

from fedegoists.benefit import BenefitEstimate, LearnSettings
from fedegoists.training.benefit_report import report_markdown


@pytest.mark.parametrize("more", [False, True])
def test_what_the_account_of_privacy_leaves_out_is_said(more):
    """Several repetitions may use the same samples."""
    runs = np.zeros((2, 1, 2, 2))
    estimate = BenefitEstimate(("a", "b"), "hypernetwork", runs, runs, runs[0, 0])
    report = report_markdown(
        "data",
        {"hypernetwork": dict.fromkeys("01" if more else "0", estimate)},
        estimate.graph(),
        [],
        rule="any",
        settings=LearnSettings(estimator="hypernetwork", clip=1.0),
        sizes={"a": (10, 5, 5), "b": (10, 5, 5)},
        sections=["## More", ""],
    )
    assert "| a | inf |" in report
    assert ("This is what one seed costs. All 2 cost more" in report) == more
    assert report.index("## Stability") < report.index("## More") < report.index("## Privacy")
