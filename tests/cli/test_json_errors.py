"""With --json, every error is JSON on the standard output, and text on the other."""

import json

import pytest

BENEFIT = "source,target,weight\na,b,2\nb,a,1\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("verify", "nowhere.json"), "no such file"),
        (("verify", "c.json", "--time-limit", "0"), "--time-limit"),
        (("form", "b.csv", "b.csv", "--method", "unknown"), "--method"),
        (("form", "b.csv", "b.csv", "--no-such-option"), "--no-such-option"),
        (("form", "-", "-"), "the standard input is one file"),
        (("form",), "BENEFIT"),
    ],
)
def test_an_error_is_json(arguments, told, run, tmp_path):
    (tmp_path / "b.csv").write_text(BENEFIT)
    code, out, err = run(*arguments, "--json")
    assert code == 2
    assert told in json.loads(out)["error"]
    assert told in err.replace("\n", " ")


def test_results_and_exit_codes_are_those_without_an_error(run, tmp_path):
    (tmp_path / "b.csv").write_text(BENEFIT)
    (tmp_path / "c.csv").write_text("a,b\n")
    code, out, _ = run("form", "b.csv", "c.csv", "--out", "o", "--json")
    assert (code, json.loads(out)["coalitions"]) == (0, [["a", "b"]])
    code, out, _ = run("verify", "o/certificate.json", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    certificate = tmp_path / "o" / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"seed": 0', '"seed": 1'))
    code, out, _ = run("verify", "o/certificate.json", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
