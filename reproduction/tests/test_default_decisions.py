"""The decisions of the defaults on real consortia."""

from pathlib import Path

import pytest

from fedegoists.consortium.consortium_settings import (
    BenefitSection,
    FormationSection,
    TrainingSection,
    read_settings,
)
from reproduction.default_decisions import (
    CONSORTIA,
    DefaultDecision,
    decision_page,
    read_decisions,
    written_decisions,
)

ROWS = [
    DefaultDecision(
        "heart", 0, "logistic", "curves", "", 0, 4, 0.0, "AUC", "va is alone because …"
    ),
    DefaultDecision("heart", 1, "logistic", "curves", "a + b", 2, 4, 0.00125, "AUC", ""),
    DefaultDecision("tcga-brca", 0, "cox", "curves", "a + b; c + d", 4, 4, 0.02, "C-index", ""),
]


@pytest.mark.parametrize("name", CONSORTIA)
def test_nothing_is_set_but_the_source_and_its_division(name, tmp_path):
    path = tmp_path / "consortium.toml"
    path.write_text(CONSORTIA[name].text(3, tmp_path / "runs"), encoding="utf-8")
    settings = read_settings(path)
    assert settings.benefit == BenefitSection()
    assert not settings.benefit.model_fields_set & {"threshold", "confidence"}
    assert settings.formation == FormationSection()
    assert settings.training == TrainingSection()
    assert (settings.data.source, settings.data.seed) == (CONSORTIA[name].source, 3)
    assert Path(settings.output.folder) == tmp_path / "runs"


def test_rows_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "decisions.csv"
    path.write_bytes(written_decisions(ROWS))
    assert read_decisions(path) == ROWS


def test_the_page_counts_who_is_in_company_and_says_why_somebody_is_alone():
    page = decision_page(ROWS, "Written by hand.")
    assert "| heart | 0 | logistic | curves | 0 of 4 | +0.0000 AUC | nobody |" in page
    assert "| heart | 1 | logistic | curves | 2 of 4 | +0.0013 AUC | a + b |" in page
    assert "| heart | nobody | 1 |\n| heart | 2 of 4 | 1 |\n| tcga-brca | 4 of 4 | 1 |" in page
    assert "- heart, division 0: va is alone because …" in page
    assert page.endswith("Written by hand.\n")
