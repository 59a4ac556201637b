"""The command ``incentives``: from graphs and from certificates."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def files(run):
    Path("benefit.csv").write_text(
        "source,target,weight\nNorth,South,0.4\nSouth,North,0.1\nEast,North,0.6\nNorth,East,0.2\n"
    )
    Path("competition.csv").write_text("a,b\nSouth,East\n")
    return "benefit.csv", "competition.csv"


def test_who_gains_by_which_report(run, files):
    code, out, _ = run("incentives", *files)
    assert code == 0
    assert "South gains 0.4 by reporting a large benefit from North" in " ".join(out.split())
    assert "Ask for a deposit" in " ".join(out.split())
    code, out, _ = run("incentives", *files, "--deposit", "0.4")
    assert "inspected with probability 50% or more" in " ".join(out.split())


def test_under_truthful_no_misreport_pays(run, files):
    code, out, _ = run("incentives", *files, "--method", "truthful")
    assert code == 0
    assert "No participant gains by misreporting" in out


def test_a_certificate_brings_its_method(run, files):
    run("form", *files, "--method", "truthful", "--out", "result")
    code, out, _ = run("incentives", "result/certificate.json", "--json", "--quiet")
    report = json.loads(out)
    assert (code, report["method"], report["inspection_probability"]) == (0, "truthful", 0)
    code, out, _ = run("incentives", "result/certificate.json", "--method", "best", "--json")
    lies = {one["participant"]: one["lies"][0] for one in json.loads(out)["participants"]}
    assert lies["South"]["lie"] == "misreport"
    assert (lies["South"]["gain"], lies["North"]["gain"]) == (0.4, 0.0)


def test_forms_verifies_and_explains_truthful_coalitions(run, files):
    assert run("form", *files, "--method", "truthful", "--out", "result")[0] == 0
    code, out, _ = run("verify", "result/certificate.json")
    assert code == 0
    assert "strategy-proof" in out
    assert run("explain", "result/certificate.json", "North", "South")[0] == 0
    assert run("what-if", "result/certificate.json", "--remove", "South,East")[0] == 0


def test_bad_input_is_an_error_with_the_fix(run, files):
    code, _, err = run("incentives", files[0])
    assert code == 2
    assert "BENEFIT and COMPETITION; or one certificate.json" in " ".join(err.split())
    code, _, err = run("incentives", *files, "--method", "truthful", "--fewest-members", "3")
    assert code == 2
    assert "use method 'best' or 'stable'" in " ".join(err.split())
    run("form", *files, "--objective", "fair", "--out", "fair")
    code, _, err = run("incentives", "fair/certificate.json")
    assert code == 2
    assert "without an objective" in " ".join(err.split())


def test_what_was_not_tried_is_said(run):
    lines = [f"v{a},v{b},{1 + (a * b) % 3}" for a in range(11) for b in range(11) if a != b]
    Path("b.csv").write_text("source,target,weight\n" + "\n".join(lines) + "\n")
    Path("c.csv").write_text("a,b\nv0,v1\nv1,v2\nv3,v4\n")
    code, out, _ = run("incentives", "b.csv", "c.csv", "--method", "stable", "--quiet")
    assert code == 0
    assert "Not all reports were tried" in out
    assert "with more than 10 participants not all reports are tried" in out
