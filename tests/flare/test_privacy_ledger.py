"""The ledger of a silo's privacy: composed, kept over kills, and never exceeded."""

import json
import math
import multiprocessing
import os
import signal
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fedegoists.cli import app
from fedegoists.federation import Describe, Evaluate, LocalTerms
from fedegoists.federation.flare.privacy_ledger import BudgetError, PrivacyEntry, PrivacyLedger
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.federation.privacy_loss import NoisyAnswers, epsilon
from tests.flare.silo_kit import GRADIENT, HALF, SCORE, START, TRAIN, TRAINED, asked, kit

pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")

ONE = PrivacyEntry("train", "train", NoisyAnswers(4.0))


def test_the_budget_is_never_exceeded_and_refusals_cost_nothing(tmp_path):
    ledger = PrivacyLedger(tmp_path, 3.0, 1e-5)
    given = 0
    while PrivacyLedger(tmp_path, None, 1e-5).accounts()["train"].spent < 2.9:
        ledger.charge([ONE])
        given += 1
    with pytest.raises(BudgetError, match="3 is allowed at delta = 1e-05"):
        ledger.charge([replace(ONE, answers=NoisyAnswers(4.0, 1.0, 2))])
    spent = ledger.accounts()["train"].spent
    assert spent == pytest.approx(epsilon([NoisyAnswers(4.0, 1.0, given)], 1e-5))
    assert spent <= 3.0 < epsilon([NoisyAnswers(4.0, 1.0, given + 2)], 1e-5)
    # Other samples have an account of their own, and an entry is all or nothing.
    validation = PrivacyEntry("validation", "evaluate", NoisyAnswers(4.0))
    with pytest.raises(BudgetError, match="of train samples"):
        ledger.charge([validation, ONE])
    assert ledger.accounts()["validation"].spent == 0.0
    ledger.charge([validation])
    assert ledger.accounts()["validation"].spent > 0


def test_operations_are_composed(tmp_path):
    ledger = PrivacyLedger(tmp_path, None, 1e-5)
    ledger.charge([ONE, PrivacyEntry("train", "describe", NoisyAnswers(2.0, 0.5, 3))])
    account = ledger.accounts()["train"]
    assert account.answers["train"] == (1, epsilon([NoisyAnswers(4.0)], 1e-5))
    assert account.answers["describe"][0] == 3
    parts = [own for _, own in account.answers.values()]
    assert max(parts) < account.spent < sum(parts)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"answers": [["train", "train", 1.0, 2.0, 1]]}',
        '{"answers": [["train", "train", 1.0, 1.0, -5]]}',
    ],
)
def test_nothing_is_answered_where_the_ledger_cannot_be_read(tmp_path, content):
    (tmp_path / "privacy.json").write_text(content)
    ledger = PrivacyLedger(tmp_path, 3.0, 1e-5)
    with pytest.raises(BudgetError, match="is not known"):
        ledger.charge([ONE])
    assert (tmp_path / "privacy.json").read_text() == content


def charge_for_ever(folder, told):
    ledger = PrivacyLedger(folder, None, 1e-5)
    while True:
        ledger.charge([ONE])
        told.send(1)  # the answer leaves


def test_an_answer_that_left_is_in_the_ledger_whenever_the_silo_is_killed(tmp_path):
    left = 0
    for _ in range(8):
        receiving, sending = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=charge_for_ever, args=(tmp_path, sending)
        )
        process.start()
        receiving.recv()
        left += 1
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        sending.close()
        while True:
            try:
                receiving.recv()
                left += 1
            except EOFError:
                break
        entered = PrivacyLedger(tmp_path, None, 1e-5).accounts()["train"].answers["train"][0]
        assert left <= entered <= left + 8  # at most one for each kill is entered and did not leave


def charge_some(folder):
    ledger = PrivacyLedger(folder, None, 1e-5)
    for _ in range(40):
        ledger.charge([ONE])


def test_two_jobs_of_a_silo_lose_no_entry(tmp_path):
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=charge_some, args=(tmp_path,)) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert PrivacyLedger(tmp_path, None, 1e-5).accounts()["train"].answers["train"][0] == 80


def entries(folder):
    rows = json.loads((folder / "state" / "privacy.json").read_text())["answers"]
    return {
        (split, operation): (noise, rate, count) for split, operation, noise, rate, count in rows
    }


def test_every_answer_of_a_silo_is_entered_as_it_is_protected(tmp_path):
    service = SiloService(kit(tmp_path, '[privacy]\nlevel = "standard"\nepsilon = 1000.0\n'))
    for request in (
        TRAIN.changed(terms=LocalTerms(anchor=START, pull=0.1, inner_steps=2)),
        GRADIENT.changed(parameters=START.repeat(4, 1)),
        SCORE,
        HALF.changed(parameters=START.repeat(3, 1)),
        Describe(),
    ):
        assert asked(service, request).refused is None
    assert entries(tmp_path) == {
        # 5 steps of 16 of 42 samples, each batch used twice.
        ("train", "train"): (pytest.approx(1 / math.sqrt(2)), pytest.approx(16 / TRAINED), 3),
        ("train", "loss_and_gradient"): (1.0, pytest.approx(8 / TRAINED), 1),
        ("train", "describe"): (3.0, 1.0, 1),
        ("validation", "evaluate"): (6.0, 1.0, 3),
        ("test", "evaluate"): (6.0, 1.0, 1),
    }


def test_a_silo_refuses_beyond_its_budget_and_shows_what_is_spent(tmp_path):
    service = SiloService(kit(tmp_path, '[privacy]\nlevel = "standard"\n'))
    refused = None
    for number in range(200):
        refused = asked(service, TRAIN.changed(seed=number)).refused
        if refused:
            break
    assert "the privacy budget of train samples does not allow this answer" in refused
    assert asked(SiloService(tmp_path), TRAIN).refused is not None  # also after a restart
    assert asked(service, SCORE).refused is None
    log = (tmp_path / "silo.log").read_text()
    assert "privacy spent, epsilon of a sample: train" in log
    shown = CliRunner().invoke(app, ["deploy", "privacy", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "budget epsilon = 30" in shown.output
    assert "evaluate" in shown.output


def test_without_noise_the_ledger_promises_nothing(tmp_path):
    service = SiloService(kit(tmp_path))
    assert asked(service, Evaluate(parameters=START, split="test")).refused is None
    shown = CliRunner().invoke(app, ["deploy", "privacy", str(tmp_path)])
    assert "no budget" in shown.output
    assert "inf" in shown.output
