"""The command line with coalition values."""

import json

import pytest

CURVES = """participant,samples,slope,slope_error,power
North,100,0.02,0.002,0
South,100,0.02,0.002,0
VA,100,0.04,0.002,0
"""
RATES = """source,target,rate,rate_error
North,South,1,0
South,North,1,0
North,VA,1,0
South,VA,1,0
"""


@pytest.fixture(autouse=True)
def folder(run, tmp_path):
    """Three hospitals; VA gains from the others and gives nothing."""
    (tmp_path / "curves.csv").write_text(CURVES)
    (tmp_path / "rates.csv").write_text(RATES)
    (tmp_path / "competition.csv").write_text("a,b\n")
    values = {
        "kind": "curves",
        "unit": "AUC",
        "participants": ["North", "South", "VA"],
        "samples": [100, 100, 100],
        "slopes": [0.02, 0.02, 0.04],
        "slope_errors": [0.002, 0.002, 0.002],
        "rates": [[0, 1, 1], [1, 0, 1], [0, 0, 0]],
    }
    (tmp_path / "values.json").write_text(json.dumps(values))
    return tmp_path


@pytest.fixture
def certificate(run) -> str:
    options = ("--values", "values.json", "--out", "result")
    assert run("form", "competition.csv", *options)[0] == 0
    return "result/certificate.json"


def test_form_shows_gains_with_their_errors(run):
    code, out, err = run("form", "competition.csv", "--values", "values.json")
    assert (code, err) == (0, "")
    assert "gains AUC" in out
    assert "+0.02" in out
    assert "> 99%" in out
    assert "Alone: VA" in out
    assert "Total expected gain 0.04 AUC, proven to be the highest possible." in out
    assert "Demanded: each member gains with probability 0.6 or more." in out


def test_form_as_json(run):
    arguments = ("--values", "values.json", "--confidence", "0.9", "--json")
    code, out, _ = run("form", "competition.csv", *arguments)
    result = json.loads(out)
    assert code == 0
    assert result["coalitions"] == [["North", "South"], ["VA"]]
    assert (result["unit"], result["confidence"]) == ("AUC", 0.9)
    assert result["standard_errors"] == {"North": 0.002, "South": 0.002, "VA": 0.0}
    assert set(result["probabilities"]) == {"North", "South"}


def test_csv_files_decide_as_the_json_file(run):
    files = ("--values", "curves.csv", "--rates", "rates.csv", "--unit", "AUC")
    by_csv = run("form", "competition.csv", *files, "--json")
    by_json = run("form", "competition.csv", "--values", "values.json", "--json")
    assert by_csv == by_json


def test_verify_derives_the_claims_and_compares_the_values(run, certificate):
    files = ("--values", "curves.csv", "--rates", "rates.csv", "--unit", "AUC")
    code, out, _ = run("verify", certificate, *files, "--competition", "competition.csv")
    assert code == 0
    assert "participation constraint" in out
    assert out.count("coalition values") == 2
    other = ("--values", "curves.csv", "--rates", "rates.csv", "--unit", "accuracy")
    code, out, _ = run("verify", certificate, *other, "--competition", "competition.csv")
    assert code == 1
    assert "FAILED" in out


def test_verify_checks_coalitions_of_any_origin(run, folder):
    (folder / "mine.csv").write_text("participant,coalition\nNorth,1\nSouth,1\nVA,1\n")
    files = ("--values", "values.json", "--competition", "competition.csv")
    code, out, _ = run("verify", "mine.csv", *files, "--json")
    result = json.loads(out)
    assert code == 1
    assert result["free_riders"] == [
        "VA gives nothing in its coalition {North, South, VA}: the others' total gain changes by "
        "+0 AUC with it"
    ]
    assert result["unlikely"] == []


def test_explain_says_what_each_adds_and_why_somebody_is_alone(run, certificate):
    code, out, _ = run("explain", certificate, "North", "South")
    assert code == 0
    assert "adding South raises North's expected gain from 0 to 0.02 AUC (± 0.002)" in out
    code, out, _ = run("explain", certificate, "VA")
    assert code == 0
    assert out.startswith("VA is alone because")


def test_what_if_speaks_the_unit(run, certificate):
    code, out, _ = run("what-if", certificate, "--add", "North,South")
    assert code == 0
    assert "North loses 0.02 AUC." in out
    assert "The total gain falls by 0.04 AUC to 0." in out
    code, out, _ = run("what-if", certificate, "--confidence", "0.99", "--json")
    assert code == 0
    assert json.loads(out)["after"]["confidence"] == 0.99


def test_draw_shows_pairs(run, certificate, folder):
    assert run("draw", certificate, "picture.svg")[0] == 0
    assert (folder / "picture.svg").stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("form", "competition.csv"), "expected two files, BENEFIT and COMPETITION"),
        (
            ("form", "rates.csv", "competition.csv", "--values", "values.json"),
            "--values takes the place of BENEFIT",
        ),
        (
            ("form", "competition.csv", "--values", "values.json", "--participants", "curves.csv"),
            "leave out --participants",
        ),
        (("form", "a.csv", "b.csv", "--rates", "rates.csv"), "--rates and --unit go with --values"),
        (("form", "competition.csv", "--values", "curves.csv"), "second CSV file"),
        (
            ("form", "competition.csv", "--values", "values.json", "--confidence", "0.2"),
            "from 0.5 to below 1",
        ),
        (("audit", "result/certificate.json"), "the audit works on benefit graphs"),
        (("verify", "result/certificate.json", "--values", "values.json"), "belong together"),
        (
            ("verify", "x.csv", "--values", "a", "--benefit", "b", "--competition", "c"),
            "takes the place of --benefit",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_with_its_fix(run, certificate, arguments, message):
    code, _, err = run(*arguments)
    assert code == 2
    assert message in " ".join(err.split())
