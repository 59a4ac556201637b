"""The study of who ends worse than alone: a small run, its page, and the committed results."""

import math

import pytest

from fedegoists.learning.model_files import delivered_words
from reproduction import RESULTS
from reproduction.participation_study import (
    BOUNDS,
    CHOSEN_ON,
    DELIVERED,
    IMAGE_TASKS,
    REPORTED_ON,
    REPORTED_ON_IMAGES,
    USUAL_TASKS,
    Ending,
    endings_csv,
    endings_of,
    participation_page,
    read_endings,
    share_worse,
)
from reproduction.real_data_commands import origins
from tests.benefit.consortia import OTHER, TASK, regressions

FOLDER = RESULTS / "participation"
MOST_WORSE = 0.05


def opposed(*, seed, data_dir=None):
    """Two participants with the same task, and one with the opposite one."""
    return regressions({"a": TASK, "b": TASK, "c": OTHER}, train=60, seed=seed)


def ending(gain, error, **changes):
    about = {"task": "heart", "repetition": 0, "participant": "va", "delivery": DELIVERED}
    about |= {"kept": "own model", "gain": gain, "error": error, "train": 60, "test": 20}
    return Ending(**{**about, **changes})


def test_the_delivered_model_harms_nobody_where_averages_do():
    endings = endings_of("synthetic-strong", [10], load=opposed)
    harmed = {one.participant for one in endings if one.delivery == "fedavg" and one.worse}
    assert "c" in harmed
    delivered = [one for one in endings if one.delivery == DELIVERED]
    assert {one.participant for one in delivered} == {"a", "b", "c"}
    assert not any(one.worse for one in delivered)
    own = [one for one in delivered if one.kept == delivered_words("local")]
    assert all(one.gain == 0 for one in own)


def test_worse_than_alone_means_by_more_than_noise():
    assert ending(-0.2, 0.1).worse
    assert not ending(-0.1, 0.1).worse
    assert not ending(0.0, 0.0).worse
    assert not ending(-0.2, math.nan).worse  # nothing is known of the noise
    assert share_worse([ending(-1, 0.1), ending(1, 0.1)]) == 0.5


def test_rows_come_back_and_make_a_page(tmp_path):
    rows = [ending(0.25, 0.5, repetition=k, delivery=d) for k in (0, 1) for d in ("egomix", "x")]
    path = tmp_path / "rows.csv"
    path.write_bytes(endings_csv(rows))
    assert read_endings(path) == rows
    page = participation_page(rows, [], "Written by hand.")
    assert "| heart | 2 | 0.0 % | 0.0 % |" in page
    assert "+0.250 (+0.250 to +0.250)" in page


@pytest.fixture(scope="module")
def committed():
    return read_endings(FOLDER / "participation.csv"), read_endings(FOLDER / "choice.csv")


def test_the_page_is_derived_from_its_rows(committed):
    page = (FOLDER / "participation.md").read_text(encoding="utf-8")
    assert page == participation_page(*committed, "\n\n".join(origins(page)))


def test_all_tasks_were_measured_on_other_repetitions_than_the_rule_was_chosen_on(committed):
    reported, choice = committed
    trained = {one.task for one in reported}.intersection(IMAGE_TASKS)  # they need a GPU
    images = {(task, k) for task in trained for k in REPORTED_ON_IMAGES}
    assert {(one.task, one.repetition) for one in reported} == images | {
        (task, k) for task in USUAL_TASKS for k in REPORTED_ON
    }
    assert {(one.task, one.repetition) for one in choice} == {
        (task, k) for task in USUAL_TASKS for k in CHOSEN_ON
    }
    assert set(BOUNDS) < {one.delivery for one in choice}


def test_few_end_worse_than_alone(committed):
    delivered = [one for one in committed[0] if one.delivery == DELIVERED]
    assert share_worse(delivered) <= MOST_WORSE
    for task in {one.task for one in delivered}:
        assert share_worse([one for one in delivered if one.task == task]) <= 2 * MOST_WORSE
