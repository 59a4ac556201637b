"""The command line as a user meets it: what it prints, what it writes, how it ends."""

import itertools
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedegoists.coalitions import Certificate, form
from fedegoists.commitments import Commitment
from tests.coalitions.proof.test_check import sealed
from tests.instances import random_graphs

BENEFIT = """source,target,weight
North,South,0.4
South,North,0.1
East,North,0.3
North,East,0.2
West,East,0.5
East,West,0.1
"""
COMPETITION = "a,b\nSouth,East\n"
FILES = {
    "check.py",
    "certificate.json",
    "coalitions.csv",
    "usage.csv",
    "coalitions.png",
    "coalitions.svg",
}


@pytest.fixture(autouse=True)
def folder(run, tmp_path):
    """The folder the commands run in, with two files."""
    (tmp_path / "benefit.csv").write_text(BENEFIT)
    (tmp_path / "competition.csv").write_text(COMPETITION)
    return tmp_path


@pytest.fixture
def certificate(run) -> str:
    assert run("form", "benefit.csv", "competition.csv", "--out", "result")[0] == 0
    return "result/certificate.json"


# form ------------------------------------------------------------------------------------------


def test_form_shows_who_is_with_whom(run):
    code, out, err = run("form", "benefit.csv", "competition.csv")
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if "│" in line]
    assert [line.split("│")[2].strip() for line in lines] == ["East", "North", "West"]
    assert "Alone: South" in out
    assert "Total benefit 1.1, proven to be the highest possible." in out
    assert "No coalitions could still gain by merging: proven." in out


def test_form_as_json(run):
    code, out, _ = run("form", "benefit.csv", "competition.csv", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["coalitions"] == [["East", "North", "West"], ["South"]]
    assert result["utilities"] == {"East": 0.7, "North": 0.3, "South": 0, "West": 0.1}
    assert (result["stable"], result["optimal"]) == (True, True)


@pytest.mark.parametrize("method", ["best", "stable", "published", "cliques", "truthful"])
def test_form_writes_everything(run, folder, method):
    arguments = ("--method", method, "--out", "new/result", "--json")
    code, out, _ = run("form", "benefit.csv", "competition.csv", *arguments)
    assert code == 0
    assert json.loads(out)["method"] == method
    assert {path.name for path in (folder / "new/result").iterdir()} == FILES


def test_what_form_writes(run, folder, certificate):
    rows = (folder / "result/coalitions.csv").read_text().splitlines()
    assert rows == ["participant,coalition", "East,1", "North,1", "South,2", "West,1"]
    usage = (folder / "result/usage.csv").read_text().splitlines()
    assert sorted(usage[1:]) == [
        "East,North,0.3",
        "East,West,0.1",
        "North,East,0.2",
        "West,East,0.5",
    ]
    assert (folder / "result/coalitions.png").read_bytes().startswith(b"\x89PNG")
    for name in FILES:
        mode = stat.S_IMODE((folder / "result" / name).stat().st_mode)
        assert mode == 0o600, "it names competitors, or lies beside what does"


def test_form_with_another_objective(run):
    arguments = ("form", "benefit.csv", "competition.csv", "--json", "--objective")
    code, out, _ = run(*arguments, "participation")
    result = json.loads(out)
    assert code == 0
    assert (result["objective"], result["proven"]) == ("participation", True)
    assert sorted(map(len, result["coalitions"])) == [2, 2]
    code, out, _ = run("form", "benefit.csv", "competition.csv", "--objective", "fair")
    assert "aim: the fairest partition, proven." in out
    code, _, err = run(*arguments, "fair", "--method", "stable")
    assert code == 2
    assert "needs method 'best'" in err


def test_audit_says_who_would_rather_leave(run, folder, certificate):
    code, out, _ = run("audit", certificate)
    assert code == 0
    assert "core-stable" in out
    (folder / "benefit.csv").write_text("source,target,weight\nA,B,3\nB,A,3\nA,C,9\nC,A,1\n")
    (folder / "competition.csv").write_text("a,b\nB,C\n")
    assert run("form", "benefit.csv", "competition.csv", "--out", "other")[0] == 0
    code, out, _ = run("audit", "other/certificate.json", "--json")
    assert code == 1
    assert json.loads(out) == {"core_stable": False, "blocking": ["A", "B"], "gains": [2.0, 3.0]}


def test_participants_fix_the_list(run, folder):
    (folder / "all.txt").write_text("West\nNorth\nSouth\nEast\nLonely\n")
    arguments = ("form", "benefit.csv", "competition.csv", "--participants", "all.txt", "--json")
    code, out, _ = run(*arguments)
    assert code == 0
    assert json.loads(out)["coalitions"] == [["West", "North", "East"], ["South"], ["Lonely"]]
    (folder / "all.txt").write_text("West\nNorth\nSouth\n")
    code, _, err = run(*arguments)
    assert code == 2
    assert "benefit.csv, line 4: unknown participant 'East'" in err


def test_a_misspelled_competitor_is_warned_of(run, folder):
    (folder / "competition.csv").write_text("a,b\nSouth,Eats\n")
    code, out, err = run("form", "benefit.csv", "competition.csv", "--json")
    assert code == 0
    assert "Eats" in json.loads(out)["utilities"]
    assert err == (
        "warning: competition.csv, line 2: 'Eats' is in no line of benefit.csv, and counts "
        "as a further participant; did you mean 'East'? (with --participants such a name is an "
        "error)\n"
    )
    (folder / "all.txt").write_text("North\nSouth\nEast\nWest\nEats\n")
    arguments = ("form", "benefit.csv", "competition.csv", "--participants", "all.txt")
    code, _, err = run(*arguments)
    assert (code, err) == (0, "")
    (folder / "all.txt").write_text("North\nSouth\nEast\nWest\n")
    code, _, err = run(*arguments)
    assert code == 2
    assert "unknown participant 'Eats'; did you mean 'East'" in err


def test_cover(run, folder):
    (folder / "cover.csv").write_text("participant,coalition\nNorth,x\nSouth,x\nEast,y\nWest,y\n")
    arguments = ("form", "benefit.csv", "competition.csv", "--cover", "cover.csv", "--json")
    code, out, _ = run(*arguments, "--method", "published")
    assert code == 0
    assert json.loads(out)["coalitions"] == [["East", "West"], ["North", "South"]]
    code, _, err = run(*arguments)
    assert code == 2
    assert "a clique cover applies to 'cliques' and 'published', not 'best'" in err


def test_json_graphs_and_an_empty_consortium(run, folder):
    (folder / "b.json").write_text('{"participants": [], "edges": []}')
    (folder / "c.json").write_text('{"participants": [], "pairs": []}')
    code, out, _ = run("form", "b.json", "c.json")
    assert code == 0
    assert "There are no participants" in out


BAD_BENEFITS = {
    "": "benefit.csv: the file is empty; expected the header source,target,weight",
    "source,target,weight\nA,B": "line 2: 2 values where 3 are expected",
    "source,target,weight\nA,B,-1": "line 2: the benefit of 'A' to 'B' is -1.0",
    "source,target,weight\nA,B,nan": "line 2: the benefit of 'A' to 'B' is nan",
    "source,target,weight\nA,B,inf": "line 2: the benefit of 'A' to 'B' is inf",
    "source,target,weight\nA,B,x": "line 2: the weight 'x' of 'A' for 'B' is not a number",
    "source,target,weight\nA,A,1": "line 2: 'A' cannot benefit itself",
    "source,target,weight\nA,B,1\nA,B,2": "line 3: the edge from 'A' to 'B' is listed twice",
    "source;target;weight\nA;B;1": "separate the columns by commas",
    "A,B,1": "expected the header source,target,weight",
}


@pytest.mark.parametrize("method", ["best", "stable", "published", "cliques", "truthful"])
def test_huge_weights_are_refused_and_large_ones_are_not(run, folder, method):
    (folder / "competition.csv").write_text("a,b\n")
    for weight, expected in (("1e308", 2), ("1e12", 0)):
        (folder / "benefit.csv").write_text(f"source,target,weight\nA,B,{weight}\nB,A,1\n")
        code, _, err = run("form", "benefit.csv", "competition.csv", "--method", method)
        assert code == expected
        assert ("divide all of them by the same number" in err) is (expected == 2)


@pytest.mark.parametrize("content", BAD_BENEFITS)
def test_bad_input_is_named_and_nothing_is_written(run, folder, content):
    (folder / "benefit.csv").write_text(content)
    code, out, err = run("form", "benefit.csv", "competition.csv", "--out", "result")
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert BAD_BENEFITS[content] in err
    assert "Traceback" not in err
    assert not (folder / "result").exists()


def test_wrong_encoding_and_missing_files(run, folder):
    (folder / "benefit.csv").write_text(BENEFIT.replace("North", "Nörd"), encoding="latin-1")
    code, _, err = run("form", "benefit.csv", "competition.csv")
    assert code == 2
    assert "is not UTF-8 text; save the file as UTF-8" in err
    code, _, err = run("form", "absent.csv", "competition.csv")
    assert code == 2
    assert "absent.csv: no such file" in err


def test_bad_options(run):
    for arguments, message in (
        (("--method", "magic"), "magic"),
        (("--time-limit", "-1"), "positive number of seconds"),
        (("--seed", "-1"), "seed"),
    ):
        code, _, err = run("form", "benefit.csv", "competition.csv", *arguments)
        assert code == 2
        assert message in err


def test_an_unwritable_folder_is_said(run, folder):
    (folder / "result").write_text("a file is in the way")
    code, _, err = run("form", "benefit.csv", "competition.csv", "--out", "result")
    assert code == 2
    assert "cannot be written" in err
    assert (folder / "result").read_text() == "a file is in the way"


def test_earlier_results_are_replaced_only_on_demand(run, folder):
    command = ("form", "benefit.csv", "competition.csv", "--out", "result")
    assert run(*command)[0] == 0
    (folder / "result" / "coalitions.csv").write_text("mine")
    code, _, err = run(*command)
    assert code == 2
    assert "--replace" in err
    assert (folder / "result" / "coalitions.csv").read_text() == "mine"
    assert run(*command, "--replace")[0] == 0
    assert (folder / "result" / "coalitions.csv").read_text() != "mine"
    draw = ("draw", "result/certificate.json", "picture.svg")
    assert run(*draw)[0] == 0
    code, _, err = run(*draw)
    assert code == 2
    assert "picture.svg: exists already" in err
    assert run(*draw, "--replace")[0] == 0


def test_names_are_not_markup(run, folder):
    (folder / "benefit.csv").write_text(
        "source,target,weight\n[red]A[/],[/bold],1\n[/bold],[red]A[/],1\n"
    )
    (folder / "competition.csv").write_text("a,b\n")
    code, out, _ = run("form", "benefit.csv", "competition.csv")
    assert code == 0
    assert "[red]A[/]" in out
    assert "[/bold]" in out


# verify ----------------------------------------------------------------------------------------


def test_verify_a_certificate(run, certificate):
    code, out, _ = run("verify", certificate)
    assert code == 0
    assert "FAILED" not in out
    for claim in ("unchanged", "no free riders", "no conflicts", "merge-stable", "upper bound"):
        assert claim in out
    code, out, _ = run("verify", certificate, "--json")
    assert code == 0
    assert json.loads(out)["ok"] is True


def test_verify_says_that_a_search_confirmed_the_bound(run, folder):
    """A certificate of 18 participants without its proof, as earlier versions made it."""
    formation = form(*random_graphs(18, 0.5, 0.1, 3), time_limit=5)
    document = json.loads(formation.certificate.to_json())
    assert document["proof"]
    (folder / "proven.json").write_text(sealed(document))
    del document["proof"]
    (folder / "old.json").write_text(sealed(document))
    for name, searched in (("proven.json", []), ("old.json", ["upper bound"])):
        code, out, _ = run("verify", name, "--json")
        assert code == 0
        assert [c["claim"] for c in json.loads(out)["claims"] if c["searched"]] == searched
        code, out, _ = run("verify", name)
        assert code == 0
        assert ("by searching again, without a proof" in " ".join(out.split())) == bool(searched)


def test_verify_finds_a_changed_weight(run, folder, certificate):
    path = folder / certificate
    text = path.read_text()
    assert "0.4" in text
    path.write_text(text.replace("0.4", "0.5"))
    code, out, _ = run("verify", certificate)
    assert code == 1
    assert "FAILED" in out
    assert "the file's SHA-256 is not the one it states" in out


def test_verify_compares_with_ones_own_graphs(run, folder, certificate):
    graphs = ("--benefit", "benefit.csv", "--competition", "competition.csv")
    assert run("verify", certificate, *graphs)[0] == 0
    (folder / "competition.csv").write_text("a,b\nSouth,West\n")
    code, out, _ = run("verify", certificate, *graphs, "--json")
    assert code == 1
    assert [c["claim"] for c in json.loads(out)["claims"] if not c["ok"]] == ["competition graph"]


def test_verify_coalitions_from_elsewhere(run, folder, certificate):
    graphs = ("--benefit", "benefit.csv", "--competition", "competition.csv")
    assert run("verify", "result/coalitions.csv", *graphs)[0] == 0
    (folder / "mine.csv").write_text("participant,coalition\nNorth,1\nSouth,1\nEast,1\nWest,2\n")
    code, out, _ = run("verify", "mine.csv", *graphs)
    assert code == 1
    assert "South reaches its competitor East: South → North → East" in out
    code, _, err = run("verify", "mine.csv")
    assert code == 2
    assert "need --benefit and --competition" in err
    (folder / "mine.csv").write_text("participant,coalition\nNorth,1\n")
    code, _, err = run("verify", "mine.csv", *graphs)
    assert code == 2
    assert "'East' is in no coalition" in err


def test_verify_says_what_is_no_certificate(run, folder):
    (folder / "x.json").write_text("{}")
    code, _, err = run("verify", "x.json")
    assert code == 2
    assert "not a certificate" in err


def test_verify_fails_where_stability_does_not_hold(run):
    run("form", "benefit.csv", "competition.csv", "--method", "cliques", "--out", "base")
    code, out, _ = run("verify", "base/certificate.json", "--json")
    failed = [c["claim"] for c in json.loads(out)["claims"] if not c["ok"]]
    assert (code, failed) in ((0, []), (1, ["merge-stable"]))


# explain, what-if, draw, demo ------------------------------------------------------------------


def test_explain(run, certificate):
    code, out, _ = run("explain", certificate, "South", "East")
    assert code == 0
    assert out == "South and East compete, so nothing of one may reach the other.\n"
    code, out, _ = run("explain", certificate, "North", "--json")
    assert [entry["b"] for entry in json.loads(out)] == ["East", "South", "West"]
    code, _, err = run("explain", certificate, "North", "Nowhere")
    assert code == 2
    assert "unknown participant 'Nowhere'" in err


@pytest.mark.parametrize("command", [("explain", "South"), ("what-if",), ("draw", "x.png")])
def test_what_is_opened_to_others_is_not_enough_for_the_managers_commands(
    run, folder, certificate, command
):
    commitment = Commitment("run 1", Certificate.load(folder / certificate), bytes(32))
    commitment.member_certificate("South").save(folder / "member.json")
    commitment.opening().save(folder / "opening.json")
    name, *rest = command
    for file, what in (("member", "a member's certificate"), ("opening", "an auditor's opening")):
        code, _, err = run(name, f"{file}.json", *rest)
        assert code == 2
        assert f"{file}.json: this is {what}" in err
        assert "the manager's whole certificate is needed" in err


def test_what_if(run, folder, certificate):
    code, out, _ = run("what-if", certificate, "--remove", "South,East", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["after"]["coalitions"] == [["East", "North", "South", "West"]]
    assert result["moved"] == ["South"]
    assert result["welfare_change"] == pytest.approx(0.5)
    code, out, _ = run("what-if", certificate, "--leaves", "West", "--out", "after")
    assert code == 0
    assert "West leaves." in out
    assert "Written to after. Re-check it: fedegoists verify after/certificate.json" in out
    assert {path.name for path in (folder / "after").iterdir()} == FILES


def test_what_if_a_benefit_were_another(run, folder, certificate):
    text = (folder / certificate).read_text()
    code, out, _ = run(
        "what-if",
        certificate,
        *("--weight", "North,East,0"),
        *("--weight", "West,East,0"),
        "--json",
    )
    after = json.loads(out)["after"]
    assert code == 0
    assert after["coalitions"] == [["East"], ["North", "South"], ["West"]]
    assert json.loads(out)["weights"][1] == {
        "source": "West",
        "target": "East",
        "weight": 0.0,
        "error": None,
    }
    assert (folder / certificate).read_text() == text
    for wrong in ("West,South", "West,South,much", "West,South,1,2,3", "West"):
        code, _, err = run("what-if", certificate, "--weight", wrong)
        assert code == 2
        assert "expected two names and a number with commas between them" in err
    code, _, err = run("what-if", certificate, "--weight", "West,South,1,0.1")
    assert code == 2
    assert "formed from benefits without errors; leave it out" in err
    twice = ("--weight", "West,East,0", "--weight", "West,East,3")
    code, _, err = run("what-if", certificate, *twice)
    assert code == 2
    assert "'West' to 'East' is changed twice; keep one" in err
    code, out, _ = run("what-if", certificate, "--weight", "West,East,0")
    assert code == 0
    assert "The benefit of West to East becomes 0." in out
    code, _, err = run("what-if", certificate, "--weight", "Nobody,South,1")
    assert code == 2
    assert "Nobody" in err


def test_what_if_a_newcomer_joins(run, folder, certificate):
    (folder / "new.json").write_text(
        '{"name": "Central", "gives": {"South": 0.2}, "receives": {"South": 1}}'
    )
    code, out, _ = run("what-if", certificate, "--joins", "new.json")
    assert code == 0
    assert "Central joins the coalition of South." in out
    (folder / "new.json").write_text('{"name": "Central", "give": {}}')
    code, _, err = run("what-if", certificate, "--joins", "new.json")
    assert code == 2
    assert "new.json: 'give': Extra inputs are not permitted" in err
    (folder / "new.json").write_text("[]")
    code, _, err = run("what-if", certificate, "--joins", "new.json")
    assert code == 2
    assert 'new.json: expected one newcomer in braces, got []; write it like {"name": "New"' in err
    (folder / "new.json").write_text('{"name": "X", "competes": ["North", "North"]}')
    code, _, err = run("what-if", certificate, "--joins", "new.json")
    assert code == 2
    assert "'North' is listed twice among the competitors of 'X'; keep one" in err
    code, _, err = run("what-if", certificate, "--add", "North")
    assert code == 2
    assert "expected two names with a comma between them" in err


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_draw(run, folder, certificate, suffix):
    code, _, _ = run("draw", certificate, f"picture.{suffix}")
    assert code == 0
    written = (folder / f"picture.{suffix}").stat()
    assert written.st_size > 1000
    assert stat.S_IMODE(written.st_mode) == 0o600, "it shows who competes"
    assert run("draw", certificate, "picture.xyz")[0] == 2


def test_demo_of_coalitions(run, folder):
    code, out, _ = run("demo", "coalitions")
    assert code == 0
    assert "proven to be the highest possible" in out
    assert "FAILED" not in out
    written = {path.name for path in (folder / "demo/coalitions").iterdir()}
    assert written == FILES | {"benefit.csv", "competition.csv"}


def test_version_and_help(run):
    from fedegoists import __version__

    assert run("--version")[1] == f"fedegoists {__version__}\n"
    code, out, _ = run("--help")
    assert code == 0
    for command in ("form", "verify", "explain", "what-if", "draw", "demo"):
        assert command in out


def test_a_closed_pipe_is_no_traceback(folder):
    """As with `fedegoists … | head -1`."""
    command = Path(sys.executable).with_name("fedegoists")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [command, "form", "benefit.csv", "competition.csv", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert "Traceback" not in done.stderr


def test_importing_is_light():
    """The core starts without anything that takes long to load."""
    code = (
        "import sys, fedegoists, fedegoists.cli; "
        "heavy = {'torch', 'matplotlib', 'numba', 'ortools', 'networkx', 'pandas', 'pydantic'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_terminal_says_that_the_search_is_loaded(folder):
    """With fifteen in a ring, but not with a few participants."""
    ring = [f"p{k},p{(k + 1) % 15},1" for k in range(15)]
    (folder / "ring.csv").write_text("\n".join(["source,target,weight", *ring]))
    (folder / "nobody.csv").write_text("a,b\n")
    command = Path(sys.executable).with_name("fedegoists")
    for benefit, said in (("benefit.csv", False), ("ring.csv", True)):
        done = subprocess.run(
            [command, "form", benefit, "nobody.csv"],
            env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "160"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("loading the search" in done.stderr) is said


@pytest.mark.parametrize("command", [("explain", "North"), ("what-if",), ("draw", "x.png")])
def test_a_changed_certificate_is_not_relied_on(run, folder, certificate, command):
    path = folder / certificate
    path.write_text(path.read_text().replace("0.4", "0.5"))
    name, *rest = command
    code, _, err = run(name, certificate, *rest)
    assert code == 2
    assert "not to be relied on" in err


def test_files_cannot_send_control_sequences_to_the_terminal(run, folder, certificate):
    path = folder / certificate
    path.write_text(path.read_text().replace('"seed"', '"\\u001b]0;pwned\\u0007"'))
    code, _, err = run("verify", certificate)
    assert code == 2
    assert "\x1b" not in err
    assert "\x07" not in err


def test_a_newcomer_with_an_entry_twice_is_refused(run, folder, certificate):
    (folder / "new.json").write_text('{"name": "C", "gives": {"North": 1}, "gives": {}}')
    code, _, err = run("what-if", certificate, "--joins", "new.json")
    assert code == 2
    assert "twice" in err


def test_a_large_consortium_is_shown_at_once(run, folder):
    """A thousand in one coalition; looking names up one by one would take half a minute."""
    rows = "".join(f"v{i},v{(i + 1) % 1000},1\n" for i in range(1000))
    (folder / "benefit.csv").write_text("source,target,weight\n" + rows)
    (folder / "competition.csv").write_text("a,b\n")
    code, out, _ = run("form", "benefit.csv", "competition.csv", "--method", "stable")
    assert code == 0
    assert "v999" in out


def test_output_to_a_full_disk_is_said(folder):
    command = Path(sys.executable).with_name("fedegoists")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [command, "form", "benefit.csv", "competition.csv"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


# Standard input, errors as JSON, and notes --------------------------------------------------------


def test_a_certificate_from_the_standard_input(run, folder, monkeypatch):
    run("form", "benefit.csv", "competition.csv", "--out", "out")
    with (folder / "out/certificate.json").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        code, out, _ = run("verify", "-", "--json")
    assert code == 0
    assert json.loads(out)["ok"]


def test_an_error_is_json_if_json_is_asked_for(run):
    code, out, err = run("verify", "absent.json", "--json")
    assert code == 2
    assert json.loads(out) == {"error": "absent.json: no such file"}
    assert "absent.json" in err


def test_a_name_only_in_the_competition_file_is_in_notes_and_certificate(run, folder):
    rivals = (folder / "competition.csv").read_text()
    (folder / "more.csv").write_text(f"{rivals.rstrip()}\nNorth,Nroth\n")
    code, out, _ = run("form", "benefit.csv", "more.csv", "--out", "out", "--json")
    assert code == 0
    (note,) = (note for note in json.loads(out)["notes"] if "'Nroth' is in no line" in note)
    assert note in json.loads((folder / "out/certificate.json").read_text())["notes"]


def test_explanations_end_in_time(run, folder, monkeypatch):
    run("form", "benefit.csv", "competition.csv", "--out", "out")
    ticks = itertools.count()
    monkeypatch.setattr("fedegoists.cli.coalition_commands.time.perf_counter", lambda: next(ticks))
    code, out, err = run(
        "explain", "out/certificate.json", "North", "--time-limit", "1.5", "--json"
    )
    assert code == 0
    assert len(json.loads(out)) == 2
    assert "ended the explanations after 2 of 3 participants" in err


def test_without_matplotlib_there_is_no_picture_not_even_an_earlier_one(run, tmp_path, monkeypatch):
    graphs = [tmp_path / "benefit.csv", tmp_path / "competition.csv"]
    graphs[0].write_text("source,target,weight\nNorth,South,1\nSouth,North,1\n")
    graphs[1].write_text("a,b\n")
    place = tmp_path / "result"
    given = ("form", *map(str, graphs), "--out", str(place))
    assert run(*given)[0] == 0
    assert (place / "coalitions.png").exists()
    for module in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, _ = run(*given, "--replace")
    assert code == 0
    assert "No picture" in out
    assert "draw" in out
    assert (place / "certificate.json").exists()
    assert not list(place.glob("coalitions.[ps][nv]g"))
