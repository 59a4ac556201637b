"""The manager's way through a consortium: its steps, their state, and who is waited for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedegoists.coordinator.service.api_schemas import ConsortiumView, FormationView, RunView

State = Literal["done", "now", "later"]

UNFINISHED = ("queued", "running", "waiting")


@dataclass(frozen=True)
class Step:
    """One step: the first that is not done is the next one.

    Attributes
    ----------
    key : str
        Its anchor on the page.
    words : str
        What is done, or who is waited for.
    """

    number: int
    key: str
    title: str
    state: State
    words: str

    @property
    def open(self) -> bool:
        """Whether the page shows its content at once."""
        return self.state == "now"


def process_steps(
    consortium: ConsortiumView,
    estimated: Sequence[str] | None,
    formation: FormationView | None,
    runs: Sequence[RunView],
) -> list[Step]:
    """Return the eight steps from inviting members to the results.

    Parameters
    ----------
    estimated : sequence of str or None
        The members in the latest benefit graph; None if there is none.
    formation : FormationView or None
        The latest decision, published or not.
    """
    present = [one for one in consortium.members if one.state != "expelled"]
    joined = [one.name for one in present if one.state == "joined"]
    away = [one.name for one in present if one.state == "invited"]
    closed = consortium.reports == "closed"
    silent = [one.name for one in present if one.name in joined and not one.finished_reporting]
    missing = None if estimated is None else [name for name in joined if name not in estimated]
    current = formation is not None and formation.current
    published = current and formation is not None and formation.published is not None
    training = [run for run in runs if run.kind == "training"]
    finished = [run for run in training if run.state == "finished"]
    learning = any(run.kind == "benefit" and run.state in UNFINISHED for run in runs)
    working = any(run.state in UNFINISHED for run in training)
    known = missing == []
    found = [
        ("invite", "Invite", len(present) > 1, f"{len(present)} invited"),
        ("join", "Join", bool(joined) and (closed or not away), _joined(joined, away)),
        ("reports", "Reports of competitors", closed, _reporting(closed, joined, silent)),
        ("evidence", "Evidence of benefits", known, _evidence(estimated, missing, learning)),
        ("draft", "Draft decision", current, _draft(formation)),
        ("publish", "Publish", published, _publication(formation, published)),
        ("train", "Train", bool(finished), _training(training, working)),
        ("results", "Results", False, _results(finished)),
    ]
    first = next(k for k, (_, _, done, _) in enumerate(found) if not done)
    return [
        Step(k + 1, key, title, _state(done, k == first), words)
        for k, (key, title, done, words) in enumerate(found)
    ]


def _state(done: bool, first: bool) -> State:
    if first:
        return "now"
    return "done" if done else "later"


def _names(names: Sequence[str], most: int = 4) -> str:
    """Return names for a sentence.

    Examples
    --------
    >>> _names(["A"]), _names(["A", "B"]), _names(["A", "B", "C"], 2)
    ('A', 'A and B', 'A, B and 1 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _joined(joined: Sequence[str], away: Sequence[str]) -> str:
    if not joined and not away:
        return "nobody is invited yet"
    if away:
        return f"{len(joined)} joined; waiting for {_names(away)}"
    return f"all {len(joined)} joined"


def _reporting(closed: bool, joined: Sequence[str], silent: Sequence[str]) -> str:
    if closed:
        return "closed"
    if not joined:
        return "open"
    if silent:
        done = len(joined) - len(silent)
        return f"{done} of {len(joined)} finished; waiting for {_names(silent)}"
    return f"all {len(joined)} finished; you can close them"


def _evidence(
    estimated: Sequence[str] | None, missing: Sequence[str] | None, learning: bool
) -> str:
    if learning:
        return "a run is learning them"
    if estimated is None or missing is None:
        return "not known yet"
    return f"{_names(missing)} not in it" if missing else f"known for {len(estimated)} members"


def _draft(formation: FormationView | None) -> str:
    if formation is None:
        return "nothing is decided yet"
    if not formation.current:
        return "out of date: form coalitions again"
    return f"decision {formation.number}"


def _publication(formation: FormationView | None, published: bool) -> str:
    if published:
        return "members see their part"
    if formation is not None and formation.current:
        return "waiting for you: members see nothing yet"
    return "members see nothing of a draft"


def _training(training: Sequence[RunView], working: bool) -> str:
    if working:
        return "a run is in progress"
    return f"{len(training)} runs" if training else "no run yet"


def _results(finished: Sequence[RunView]) -> str:
    return f"{len(finished)} finished" if finished else "after training"
