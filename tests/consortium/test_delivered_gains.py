"""What members end with: their models' own results, named everywhere they are shown."""

import csv
import io
import math
from dataclasses import replace

import pytest

from fedegoists.consortium.delivered_gains import delivered_csv, run_delivered
from fedegoists.consortium.participant_models import candidate_words, deliveries
from fedegoists.federation.delivery import OWN
from fedegoists.learning.estimates import Interval
from fedegoists.learning.model_files import delivered_words
from fedegoists.training.summary import chosen_test_values
from tests.consortium.reports import Balance, circle, make, pages_of, written

NAMES = ["East", "North", "South"]


@pytest.fixture(scope="module")
def learners(tmp_path_factory):
    """Three regressions with the same rule and little training: company helps or does not."""
    folder = tmp_path_factory.mktemp("learners")
    return make(folder, NAMES, circle(NAMES), task="regression", rows=60, steps=40, seeds=2)


def test_every_member_has_the_result_of_the_model_it_keeps(learners):
    found = {one.participant: one for one in run_delivered(learners)}
    assert list(found) == NAMES
    federation = learners.repetitions.federation
    local = chosen_test_values(learners.outcomes["local"], federation)
    for name, one in found.items():
        model = learners.delivered[name]
        outputs, targets = federation.outputs(model.trained, model.parameters, "test")
        assert one.value == pytest.approx(federation.task.score(outputs, targets), rel=1e-4)
        assert one.alone == local[model.trained]
        assert one.gain.value == pytest.approx(one.alone - one.value, rel=1e-4)  # lower is better
        if one.method == OWN:
            assert one.gain == Interval(0.0, 0.0, 0.0)
        else:
            assert one.over == "test samples"
            assert one.gain.low < one.gain.value < one.gain.high


def test_the_kept_model_is_named_in_report_page_card_and_files(learners):
    pages = pages_of(learners)
    report = Balance(pages["report.html"]).text
    rows = list(
        csv.DictReader(io.StringIO((learners.folder / "delivered.csv").read_text(), newline=""))
    )
    for row in rows:
        name, words = row["participant"], learners.delivered[row["participant"]].words
        assert row["delivered"] == words == delivered_words(row["method"], float(row["share"]))
        assert f"{name} {words}" in report
        own = Balance(pages[f"members/{name}.html"]).text
        assert f"{name} {words}" in own
        assert not any(f"{other} {words}" in own for other in NAMES if other != name)
        assert words in (learners.folder / "cards" / f"{name}.md").read_text()
        assert f"{name}: keeps {words}" in (learners.folder / "log.txt").read_text()
    assert [row["participant"] for row in rows] == NAMES


def test_a_mixture_is_shown_beside_its_prediction(learners, tmp_path):
    model = learners.delivered["North"]
    card = model.card.model_copy(update={"method": "fedavg", "share": 0.25})
    mixed = replace(model, card=card, tested=0.5)
    run = replace(learners, delivered={**learners.delivered, "North": mixed})
    page = Balance(written(run, tmp_path)["report.html"]).text
    assert "North 25 % coalition's model (fedavg), 75 % own" in page
    (one,) = (found for found in run_delivered(run) if found.participant == "North")
    told = replace(one, predicted=Interval(0.2, -0.1, 0.5))
    line = delivered_csv([told]).decode().splitlines()[1]
    assert line.endswith("0.2,-0.1,0.5")
    assert run_delivered(learners)[0].predicted is None  # benefits have no units


def test_whoever_trains_alone_has_its_own_model_and_its_result_with_every_method(banks):
    alone = banks.alone
    assert alone
    for name in alone:
        assert banks.delivered[name].words == "own model"
        values = {banks.summary.row(method, name).mean for method in banks.wanted}
        assert values == {banks.summary.row("local", name).mean}
    federation = banks.repetitions.federation
    personal = dict.fromkeys(banks.outcomes, ())
    for one, request in deliveries(banks.outcomes, personal, federation, alone).items():
        methods = [candidate.method for candidate in request.candidates]
        expected = ["local"] if one.name in alone else ["local", "fedavg", "fedavg+ft"]
        assert methods == expected


def test_a_choice_that_is_not_told_is_not_made_up(banks, tmp_path):
    model = banks.delivered["Alder"]
    card = model.card.model_copy(update={"method": "", "kept": ("",)})
    run = replace(
        banks,
        delivered={"Alder": replace(model, card=card, tested=math.nan)},
        evaluations=replace(banks.evaluations, delivered={}),
    )
    page = Balance(written(run, tmp_path)["report.html"]).text
    assert "in its silo only (chosen at home, not told)" in page
    assert "known at home only" in page


def test_the_log_says_which_candidates_there_are(banks):
    federation = banks.repetitions.federation
    told = candidate_words(["local", "fedavg"], federation)
    assert told == (
        "own model, coalition's model (fedavg); mixtures with the own model, 25 %, 50 %, 75 % of "
        "the coalition's"
    )
    assert "add local to training.methods" in candidate_words(["fedavg"], federation)
    assert told.split(";")[0] in (banks.folder / "log.txt").read_text()
