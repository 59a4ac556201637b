"""The steps of the manager: the first that is not done is next, and says who is waited for."""

import itertools

import pytest

from fedegoists.coordinator.service.api_schemas import (
    ConsortiumView,
    FormationView,
    MemberView,
    RunView,
)
from fedegoists.coordinator.service.process_steps import process_steps

KEYS = ["invite", "join", "reports", "evidence", "draft", "publish", "train", "results"]


def consortium(states, finished=(), reports="open"):
    members = [
        MemberView(name=name, state=state, finished_reporting=name in finished)
        for name, state in states.items()
    ]
    return ConsortiumView(
        id=1, name="Banks", reports=reports, deadline=None, created="", members=members
    )


def formation(*, current=True, published=True):
    return FormationView(
        number=1, current=current, made="", published="now" if published else None,
        commitment="", method="best", objective="welfare", fewest_members=1, coalitions=[],
        welfare=0.0, upper_bound=0.0, stable=True, utilities={}, notes=[],
    )  # fmt: skip


def run(kind="training", state="finished"):
    return RunView(
        number=1, state=state, created="", ended=None, kind=kind, engine="simulation", stage="",
        done=0, total=0, remark="", error="", seconds=0.0,
    )  # fmt: skip


JOINED = {"A": "joined", "B": "joined"}


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ((consortium({}), None, None, []), "invite", "0 invited"),
        ((consortium({"A": "joined", "B": "invited"}), None, None, []), "join",
         "1 joined; waiting for B"),
        ((consortium(JOINED, {"B"}), None, None, []), "reports", "1 of 2 finished; waiting for A"),
        ((consortium(JOINED, {"A", "B"}), None, None, []), "reports",
         "all 2 finished; you can close them"),
        ((consortium(JOINED, reports="closed"), None, None, []), "evidence", "not known yet"),
        ((consortium(JOINED, reports="closed"), ["A"], None, []), "evidence", "B not in it"),
        ((consortium(JOINED, reports="closed"), None, None, [run("benefit", "running")]),
         "evidence", "a run is learning them"),
        ((consortium(JOINED, reports="closed"), ["A", "B"], None, []), "draft",
         "nothing is decided yet"),
        ((consortium(JOINED, reports="closed"), ["A", "B"], formation(current=False), []), "draft",
         "out of date: form coalitions again"),
        ((consortium(JOINED, reports="closed"), ["A", "B"], formation(published=False), []),
         "publish", "waiting for you: members see nothing yet"),
        ((consortium(JOINED, reports="closed"), ["A", "B"], formation(), []), "train",
         "no run yet"),
        ((consortium(JOINED, reports="closed"), ["A", "B"], formation(),
          [run(state="running")]), "train", "a run is in progress"),
        ((consortium(JOINED, reports="closed"), ["A", "B"], formation(), [run()]), "results",
         "1 finished"),
    ],
)  # fmt: skip
def test_the_next_step_and_who_is_waited_for(given, key, words):
    steps = process_steps(*given)
    assert [step.key for step in steps] == KEYS
    (now,) = [step for step in steps if step.open]
    assert (now.key, now.words) == (key, words)
    assert all(step.state == "done" for step in steps[: now.number - 1])


def test_one_who_never_joins_holds_up_nothing_once_reports_are_closed():
    states = {"A": "joined", "B": "joined", "C": "invited", "D": "expelled"}
    steps = process_steps(consortium(states, reports="closed"), None, None, [])
    assert next(step.key for step in steps if step.state == "now") == "evidence"
    assert "D" not in "".join(step.words for step in steps)


def test_there_is_always_one_next_step():
    for reports, estimated, decided, worked in itertools.product(
        ("open", "closed"), (None, ["A", "B"]), (None, formation()), ([], [run()])
    ):
        steps = process_steps(consortium(JOINED, reports=reports), estimated, decided, worked)
        assert sum(step.state == "now" for step in steps) == 1
