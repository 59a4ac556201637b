"""The command line with benefits that have errors, and sensitivity."""

import json

import pytest

BENEFIT = """source,target,weight,error
North,South,0.4,0.05
South,North,0.3,0.05
East,North,0.6,0.3
North,East,0.2,0.1
"""


@pytest.fixture(autouse=True)
def folder(run, tmp_path):
    """North and South are sure of each other; East's benefits may not be real."""
    (tmp_path / "benefit.csv").write_text(BENEFIT)
    (tmp_path / "competition.csv").write_text("a,b\n")
    return tmp_path


def test_form_says_how_sure_a_decision_is(run):
    code, out, err = run("form", "benefit.csv", "competition.csv")
    out = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "Alone: East" in out
    assert "nobody rides free in a coalition with probability 0.8 or more" in out
    assert "{North, South}: the probability that nobody rides free is over 99 %" in out
    assert "Measure first whether" in out


def test_errors_can_be_ignored(run):
    code, out, _ = run("form", "benefit.csv", "competition.csv", "--risk", "ignore", "--json")
    assert code == 0
    assert json.loads(out)["coalitions"] == [["East", "North", "South"]]


def test_the_worst_tenth_as_json(run):
    options = ("--risk", "worst-decile", "--scenarios", "50", "--confidence", "0.9", "--json")
    code, out, _ = run("form", "benefit.csv", "competition.csv", *options)
    result = json.loads(out)
    assert code == 0
    assert result["doubt"]["risk"] == "worst-decile"
    assert result["doubt"]["scenarios"] == 50
    assert result["confidence"] == 0.9


def test_a_risk_without_errors_is_refused(run, folder):
    (folder / "benefit.csv").write_text("source,target,weight\nNorth,South,1\nSouth,North,1\n")
    code, _, err = run("form", "benefit.csv", "competition.csv", "--risk", "expected")
    assert code == 2
    assert "no standard errors" in " ".join(err.split())


def test_verify_and_sensitivity_of_a_certificate(run):
    assert run("form", "benefit.csv", "competition.csv", "--out", "result")[0] == 0
    files = ("--benefit", "benefit.csv", "--competition", "competition.csv")
    code, out, _ = run("verify", "result/certificate.json", *files, "--json")
    result = json.loads(out)
    assert (code, result["ok"]) == (0, True)
    assert {"probabilities", "regret", "best measurement"} <= {c["claim"] for c in result["claims"]}
    code, out, _ = run("sensitivity", "result/certificate.json")
    out = " ".join(out.split())
    assert code == 0
    assert "North would be reached by what South contributes" in out
    assert "have members confirm that they named all competitors" in out
    code, out, _ = run("sensitivity", "result/certificate.json", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["exact"] is True
    assert {"weights", "reports", "reach"} <= set(found)
