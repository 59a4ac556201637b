"""Hostile certificates: the work is bounded, no traceback, and nothing false is confirmed.

The kinds of attack are those of `benchmarks.bench_hostile`, which measures large ones.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from pydantic import ValidationError

from benchmarks.hostile_certificates import (
    ATTACKS,
    PAIR,
    certificate,
    many_small_components,
    numbered,
    prices,
    sealed_text,
)
from fedegoists import Certificate, verify
from fedegoists.cli.time_limit import ends_at_limit
from fedegoists.coalitions.principles import MOST_NAMES, Conflict, Merger, named
from fedegoists.coalitions.proof import check, coalition_listing, price_proof
from fedegoists.coalitions.proof.certificate_format import CertificateDocument
from fedegoists.errors import CertificateError
from tests.coalitions.test_robustness import ring

SMALL = 3_000


class FewSteps(check.StepCount):
    def __init__(self) -> None:
        super().__init__(1_000)


def judged_alone(text: str, path, monkeypatch, capsys, *options: str) -> tuple[int, str]:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    monkeypatch.setattr(sys, "argv", ["check.py", str(path), *options])
    code = check.main()
    return code, "".join(capsys.readouterr())


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_ends_in_an_answer(kind, tmp_path, monkeypatch, capsys):
    text = ATTACKS[kind](SMALL)
    monkeypatch.setattr(check, "StepCount", FewSteps)
    code, _ = judged_alone(text, tmp_path / "certificate.json", monkeypatch, capsys)
    assert code in (0, 1, 2, 3, 4)
    with suppress(CertificateError):
        found = Certificate.from_json(text).check(time_limit=0.2)
        assert not (found.ok and code == 1)  # one confirms it, and the other finds it wrong


# Reading -----------------------------------------------------------------------------------------


def document(**more: object) -> dict:
    return json.loads(certificate(["a", "b"], PAIR, [], [[0, 1]])) | more


@pytest.mark.parametrize(
    "more",
    [
        {"notes": [0] * 50},
        {"notes": [{}] * 50},
        {"coalitions": [[0] * 50]},
        {"claims": [{}] * 50},
        {"software": {str(k): 0 for k in range(50)}},
        {str(k): 0 for k in range(50)},
        {"proof": [{"members": ["a"], "prices": ["x"] * 50, "at_most": 1}]},
        {"proof": [{"members": ["a"], "prices": [1], "at_most": 1, "rows": [1] * 50}]},
    ],
)
def test_only_the_first_error_is_described(more):
    """Descriptions of millions of errors would take gigabytes."""
    with pytest.raises(ValidationError) as error:
        CertificateDocument.model_validate(document(**more))
    assert error.value.error_count() <= 2  # one for each type that it might be


def test_long_texts_are_cut_in_errors(tmp_path, monkeypatch, capsys):
    text = json.dumps(document(version="1" * 5_000, format="f" * 5_000))
    path = tmp_path / "certificate.json"
    code, told = judged_alone(text, path, monkeypatch, capsys)
    assert code == 2
    assert len(told) < 500
    text = json.dumps(document(version="1" * 5_000))
    with pytest.raises(CertificateError) as error:
        Certificate.from_json(text)
    assert len(str(error.value)) < 500


def test_long_texts_are_cut_in_the_answer(tmp_path, monkeypatch, capsys):
    text = certificate(["a", "b"], PAIR, [], [[0, 1]]).replace("no conflicts", "x" * 5_000)
    _, told = judged_alone(text, tmp_path / "certificate.json", monkeypatch, capsys)
    assert max(map(len, told.splitlines())) == check.LONGEST_LINE
    assert "WRONG  unchanged" in told


def test_the_digest_is_the_last_entry(tmp_path, monkeypatch, capsys):
    """With another entry behind it, readers that hash the file otherwise could disagree."""
    honest = certificate(["a", "b"], PAIR, [], [[0, 1]])
    blank = honest[: honest.rindex('"') - 64] + "0" * 64 + '","more":0}'
    text = sealed_text(blank)
    _, told = judged_alone(text, tmp_path / "certificate.json", monkeypatch, capsys)
    assert "WRONG  unchanged" in told


# Witnesses ---------------------------------------------------------------------------------------


def test_fifty_names_are_shown_and_the_others_counted():
    names = [f"v{i}" for i in range(MOST_NAMES + 7)]
    assert named(names) == f"{{{', '.join(names[:MOST_NAMES])} and 7 others}}"
    assert named(names[:MOST_NAMES]) == f"{{{', '.join(names[:MOST_NAMES])}}}"
    path = Conflict(names[0], names[-1], tuple(names))
    assert str(path).endswith(f"→ {names[MOST_NAMES - 2]} → 7 others → {names[-1]}")
    whole = Conflict(names[0], names[3], tuple(names[:4]))
    assert str(whole) == "v0 reaches its competitor v3: v0 → v1 → v2 → v3"
    merger = Merger(tuple((name,) for name in names), 3.0)
    assert str(merger).endswith("{v19} and 37 other coalitions would gain 3 by merging")


# Proofs ------------------------------------------------------------------------------------------


def in_a_ring(n: int, **more: object) -> str:
    """Neighbours on a ring help each other; a price of 3 for each leaves every set listed."""
    edges = [(i, (i + s) % n, 1) for i in range(n) for s in (1, -1)]
    proof = [prices(numbered(n), 3.0, 1.5 * n, **more)]
    return certificate(numbered(n), edges, [(0, 1)], bound=1.5 * n, proof=proof)


def bound_claim(text: str):
    (claim,) = (
        one for one in Certificate.from_json(text).check().claims if one.claim == "upper bound"
    )
    return claim


def test_inequalities_over_too_many_pairs_are_no_proof(tmp_path, monkeypatch, capsys):
    """A square adds all 190 pairs of 20 participants but 19 neighbours and two competitors."""
    text = in_a_ring(20, rows=["square" + " 1" * 20], row_prices=[0.001])
    path = tmp_path / "certificate.json"
    monkeypatch.setattr(price_proof, "MOST_STEPS", 1_000)
    monkeypatch.setattr(check, "StepCount", FewSteps)
    for most, told in ((169, True), (170, False)):
        monkeypatch.setattr(price_proof, "MOST_PAIRS", most)
        monkeypatch.setattr(check, "MOST_PAIRS", most)
        assert ("more than 169 pairs" in bound_claim(text).found) == told
        _, lines = judged_alone(text, path, monkeypatch, capsys)
        assert ("OPEN   upper bound: the inequalities are over more pairs" in lines) == told


def test_too_many_listed_coalitions_are_no_proof(tmp_path, monkeypatch, capsys):
    text = in_a_ring(16)
    path = tmp_path / "certificate.json"
    for most in (50, 200_000):
        monkeypatch.setattr(coalition_listing, "MOST_COALITIONS", most)
        monkeypatch.setattr(check, "MOST_COALITIONS", most)
        told = most == 50
        assert ("its prices leave more than 50 coalitions" in bound_claim(text).found) == told
        _, lines = judged_alone(text, path, monkeypatch, capsys)
        assert ("the prices leave more coalitions than are allowed" in lines) == told


# The stand-alone checker says what a limit left open ---------------------------------------------


def test_a_claim_that_a_limit_leaves_open_has_an_exit_status_of_its_own(
    tmp_path, monkeypatch, capsys
):
    text = many_small_components(6_000)
    path = tmp_path / "certificate.json"
    monkeypatch.setattr(check, "StepCount", FewSteps)
    document = json.loads(text)
    # Together with a claim that is wrong, the status is that of a wrong claim.
    code, lines = judged_alone(text, path, monkeypatch, capsys)
    assert (code, "WRONG  merge-stable" in lines) == (1, True)
    assert "OPEN   upper bound: not confirmed within the steps allowed" in lines
    document["claims"][2]["status"] = "not proven"
    document["method"] = "truthful"
    (head, tail) = json.dumps({**document, "sha256": "0" * 64}).rsplit("0" * 64, 1)
    digest = check.hashlib.sha256((head + "0" * 64 + tail).encode()).hexdigest()
    code, lines = judged_alone(head + digest + tail, path, monkeypatch, capsys)
    assert (code, "OPEN   upper bound" in lines) == (4, True)


@pytest.mark.parametrize(
    ("name", "most", "told"),
    [
        ("MOST_BYTES", 100, "the file has more than 100 bytes"),
        ("MOST_PARTICIPANTS", 1, "there are more than 1 participants"),
        ("LONGEST_NAME", 0, "a name has more than 0 letters"),
        ("MOST_DIGITS", 10, "the benefits have more digits together than are allowed"),
    ],
)
def test_files_over_a_limit_are_not_judged(name, most, told, tmp_path, monkeypatch, capsys):
    path = tmp_path / "certificate.json"
    honest = certificate(["a", "b"], PAIR, [], [[0, 1]])
    assert judged_alone(honest, path, monkeypatch, capsys)[0] == 0
    monkeypatch.setattr(check, name, most)
    code, lines = judged_alone(honest, path, monkeypatch, capsys)
    assert (code, f"OPEN   {told}" in lines) == (4, True)


def test_the_stand_alone_checker_ends_at_its_time_limit(tmp_path):
    """Ten components take half a minute; what was found before is shown."""
    path = tmp_path / "certificate.json"
    path.write_text(many_small_components(60_000))
    command = [sys.executable, "-I", "-S", check.__file__, str(path), "--time-limit", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "")
    assert done.stdout.splitlines()[0] == "ok     unchanged: yes"
    assert done.stdout.splitlines()[-1].startswith("OPEN   the rest: not checked within 0.5 s")


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_limit_is_a_positive_number(limit, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        judged_alone("", tmp_path / "none.json", monkeypatch, capsys, f"--time-limit={limit}")
    assert end.value.code == 2
    assert "time" in capsys.readouterr().err


# One clock ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_without_a_clock_of_its_own_ends_at_the_time_limit(as_json):
    work = (
        "from fedegoists.cli.time_limit import ends_at_limit\n"
        f"with ends_at_limit(0.1, as_json={as_json}):\n"
        "    while True: pass\n"
    )
    command = [sys.executable, "-c", work]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the time limit of 0.1 s ended the command" in done.stderr
    assert bool(done.stdout) == as_json
    if as_json:
        assert "nothing is confirmed" in json.loads(done.stdout)["error"]


def test_a_command_that_ends_in_time_is_left_alone():
    with ends_at_limit(0.05, as_json=False):
        pass
    time.sleep(0.6)  # the moment at which the program would end


def test_a_passed_deadline_ends_the_check_of_a_ring_claimed_as_one_coalition():
    benefit, competition = ring(60)
    late = time.perf_counter() - 1
    found = verify(benefit, competition, [benefit.participants], deadline=late)
    assert found.conflicts
    assert found.stable is None


# What a listing keeps ----------------------------------------------------------------------------


def test_the_stand_alone_checker_keeps_few_branches_and_triples(tmp_path, monkeypatch, capsys):
    path = tmp_path / "certificate.json"
    for kind, limit, told in (
        ("square of ones", "MOST_WAITING", "needs more memory than is allowed"),
        ("different triples", "MOST_TRIPLES", "more than 20 triples have a price"),
    ):
        text = ATTACKS[kind](SMALL)
        code, lines = judged_alone(text, path, monkeypatch, capsys)
        assert told not in lines
        with monkeypatch.context() as patched:
            patched.setattr(check, limit, 20)
            code, lines = judged_alone(text, path, monkeypatch, capsys)
        assert f"OPEN   upper bound: {told}" in lines or told in lines
        assert code != 0


@pytest.mark.slow
def test_what_a_listing_forgets_it_works_out_again(tmp_path, monkeypatch, capsys):
    """A cache that is emptied all the time changes no answer."""
    for kind in ("long listing", "hard cover", "many triples"):
        text = ATTACKS[kind](SMALL)
        path = tmp_path / "certificate.json"
        before = judged_alone(text, path, monkeypatch, capsys)
        with monkeypatch.context() as patched:
            patched.setattr(check, "MOST_KEPT", 1)
            assert judged_alone(text, path, monkeypatch, capsys) == before


def test_each_component_has_steps_of_its_own(tmp_path, monkeypatch, capsys):
    """Two components are confirmed with no more steps for each than one of them needs."""

    def side_by_side(count: int) -> str:
        """Rings of 15 whose neighbours alone give each other one, and their prices: a half."""
        names = numbered(15 * count)
        rings = [range(15 * k, 15 * k + 15) for k in range(count)]
        edges = [
            (a, b, 1)
            for r in rings
            for k in range(15)
            for a, b in ((r[k], r[(k + 1) % 15]), (r[(k + 1) % 15], r[k]))
        ]
        near = {frozenset(edge[:2]) for edge in edges}
        everybody = itertools.combinations(range(15 * count), 2)
        pairs = [pair for pair in everybody if frozenset(pair) not in near]
        proof = [prices([names[i] for i in r], 1.0, 15.0) for r in rings]
        return certificate(names, edges, pairs, bound=15.0 * count, proof=proof)

    spent = []

    class Counted(check.StepCount):
        def spend(self, steps: int) -> None:
            spent.append(steps)
            super().spend(steps)

    path = tmp_path / "certificate.json"
    monkeypatch.setattr(check, "StepCount", Counted)
    _, lines = judged_alone(side_by_side(1), path, monkeypatch, capsys)
    assert "ok     upper bound: 15" in lines
    enough = sum(spent)

    class Enough(check.StepCount):
        def __init__(self) -> None:
            super().__init__(enough)

    monkeypatch.setattr(check, "StepCount", Enough)
    _, lines = judged_alone(side_by_side(2), path, monkeypatch, capsys)
    assert "ok     upper bound: 30" in lines


ENDED = {
    "from fedegoists.cli.time_limit import ends_at_limit\n"
    "import time\n"
    "with ends_at_limit(0.1, as_json=True):\n"
    "    time.sleep(30)\n": 1,
    "from fedegoists.coalitions.proof import check\n"
    "import threading, time\n"
    "threading.Timer(0.1, check.give_up, ([], 0.1)).start()\n"
    "time.sleep(30)\n": 4,
}


@pytest.mark.parametrize("program", ENDED)
def test_a_time_limit_holds_where_nobody_reads_the_answer(program):
    read, write = os.pipe()
    os.close(read)  # as in `verify FILE | true`
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, stdout=write, stderr=write, timeout=20, check=False)
    os.close(write)
    assert ended.returncode == ENDED[program]
