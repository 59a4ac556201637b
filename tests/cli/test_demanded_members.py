"""The option --fewest-members of form, verify, explain, what-if and audit."""

import json

import pytest

BENEFIT = """source,target,weight
North,South,5
South,North,5
North,East,1
East,West,1
West,North,1
"""
COMPETITION = "a,b\nSouth,East\nSouth,West\n"


@pytest.fixture(autouse=True)
def folder(run, tmp_path):
    """The folder the commands run in: a pair of welfare 10, or a circle of three of welfare 3."""
    (tmp_path / "benefit.csv").write_text(BENEFIT)
    (tmp_path / "competition.csv").write_text(COMPETITION)
    return tmp_path


@pytest.fixture
def certificate(run) -> str:
    files = ("benefit.csv", "competition.csv")
    assert run("form", *files, "--fewest-members", "3", "--out", "result")[0] == 0
    return "result/certificate.json"


def test_form(run):
    files = ("benefit.csv", "competition.csv")
    code, out, _ = run("form", *files, "--fewest-members", "3")
    assert code == 0
    assert "Alone: South" in out
    assert "Total benefit 3, proven to be the highest possible." in out
    assert "Demanded: a coalition is one participant alone or has at least 3 members." in out
    code, out, _ = run("form", *files)
    assert "Total benefit 10" in out
    assert "Demanded" not in out
    result = json.loads(run("form", *files, "--fewest-members", "3", "--json")[1])
    assert result["fewest_members"] == 3
    code, _, err = run("form", *files, "--fewest-members", "3", "--method", "published")
    assert code == 2
    assert "use method 'best' or 'stable'" in err
    assert run("form", *files, "--fewest-members", "0")[0] == 2


def test_verify(run, folder, certificate):
    code, out, _ = run("verify", certificate)
    assert code == 0
    assert "enough members" in out
    assert run("verify", certificate, "--fewest-members", "3")[0] == 0
    code, out, _ = run("verify", certificate, "--fewest-members", "4", "--json")
    assert code == 1
    wrong = [claim["claim"] for claim in json.loads(out)["claims"] if not claim["ok"]]
    assert wrong == ["demand"]
    text = (folder / certificate).read_text()
    (folder / "lowered.json").write_text(text.replace('"fewest_members": 3', '"fewest_members": 2'))
    assert run("verify", "lowered.json")[0] == 1
    (folder / "raised.json").write_text(text.replace('"fewest_members": 3', '"fewest_members": 4'))
    code, _, err = run("explain", "raised.json", "North", "South")
    assert code == 2
    assert "not to be relied on" in err


def test_verify_coalitions_from_elsewhere(run, folder):
    (folder / "pair.csv").write_text("participant,coalition\nNorth,1\nSouth,1\nEast,2\nWest,3\n")
    graphs = ("--benefit", "benefit.csv", "--competition", "competition.csv")
    code, out, _ = run("verify", "pair.csv", *graphs)
    assert code == 0
    assert "enough members" not in out
    code, out, _ = run("verify", "pair.csv", *graphs, "--fewest-members", "3")
    assert code == 1
    assert "{North, South} has 2 members" in out
    found = json.loads(run("verify", "pair.csv", *graphs, "--fewest-members", "3", "--json")[1])
    assert len(found["too_small"]) == 1


def test_explain_what_if_and_audit(run, certificate):
    _, out, _ = run("explain", certificate, "South", "North")
    assert "South there competes with" not in out
    code, out, _ = run("what-if", certificate, "--leaves", "East", "--json")
    assert code == 0
    after = json.loads(out)["after"]
    assert (after["fewest_members"], after["welfare"]) == (3, 0)
    _, out, _ = run("what-if", certificate, "--fewest-members", "2", "--json")
    assert json.loads(out)["welfare_change"] == 7
    # North and South would rather be a pair, which is not allowed.
    assert run("audit", certificate)[0] == 0
