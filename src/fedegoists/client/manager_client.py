"""The coordinator, as a manager uses it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast
from urllib.parse import quote

from fedegoists.client.answers import (
    ConsortiumAnswer,
    ExplanationAnswer,
    FormationAnswer,
    RunAnswer,
    WhatIfAnswer,
)
from fedegoists.client.connection import ClientError, Connection, FilePath
from fedegoists.files import write_bytes

ENDED = ("finished", "failed", "cancelled")


class ManagerClient(Connection):
    """The coordinator, as a manager uses it; parameters as for `Connection`."""

    def found(self, name: str, deadline: str | None = None) -> "ManagedConsortium":
        """Found a consortium; members may report until the deadline, if there is one."""
        body = {"name": name, "deadline": deadline}
        made = cast("ConsortiumAnswer", self.read("POST", "/api/consortia", body))
        return ManagedConsortium(self, made["id"])

    def consortia(self) -> list["ManagedConsortium"]:
        """Return all consortia."""
        found = cast("list[ConsortiumAnswer]", self.read("GET", "/api/consortia"))
        return [ManagedConsortium(self, one["id"]) for one in found]

    def consortium(self, number: int) -> "ManagedConsortium":
        """Return the consortium with a number, as in the address of its page."""
        return ManagedConsortium(self, number)


class ManagedConsortium:
    """One consortium, as its manager sees it."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        self._path = f"/api/consortia/{number}"

    def state(self) -> ConsortiumAnswer:
        """Return its members, and whether reports are open."""
        return cast("ConsortiumAnswer", self.connection.read("GET", self._path))

    def invite(self, names: Sequence[str]) -> dict[str, str]:
        """Invite organisations, all or none; return their invitations as links, by name."""
        path = f"{self._path}/invitations"
        made = self.connection.read("POST", path, {"names": list(names)})
        return {
            one["label"]: f"{self.connection.url}/login#{one['invitation']}"
            for one in cast("list[dict[str, str]]", made)
        }

    def invite_again(self, name: str) -> str:
        """Invite a member again that lost its token, which ends; return its link."""
        path = f"{self._path}/members/{quote(name, safe='')}/invitation"
        made = cast("dict[str, str]", self.connection.read("POST", path))
        return f"{self.connection.url}/login#{made['invitation']}"

    def expel(self, name: str) -> None:
        """Expel a member, which cannot be undone."""
        self.connection.ask("DELETE", f"{self._path}/members/{quote(name, safe='')}")

    def set_deadline(self, deadline: str | None) -> None:
        """Set when reporting ends, such as ``2026-12-24T18:00`` (UTC); None for no deadline."""
        self.connection.ask("PUT", f"{self._path}/deadline", {"deadline": deadline})

    def close_reports(self) -> None:
        """Let members report no more."""
        self.connection.ask("POST", f"{self._path}/reports/close")

    def reopen_reports(self) -> None:
        """Let members change their reports again."""
        self.connection.ask("POST", f"{self._path}/reports/reopen")

    def record_benefit(self, edges: Iterable[tuple[str, str, float]]) -> None:
        """Record who benefits from whom: source, target and weight, as `BenefitGraph.edges`."""
        self.connection.ask("PUT", f"{self._path}/benefit", {"edges": [list(one) for one in edges]})

    def learn_benefit(self, engine: str = "simulation", **plan: object) -> "ManagedRun":
        """Start a run that learns the benefits; `plan` as in `train`."""
        return self._start("benefit", engine, plan)

    def form(self, *, draft: bool = False, **order: object) -> FormationAnswer:
        """Decide who trains with whom, with settings such as ``fewest_members=3``.

        Members see their part at once or, of a draft, when it is published.
        """
        path = f"{self._path}/formations"
        made = self.connection.read("POST", path, {"draft": draft, **order})
        return cast("FormationAnswer", made)

    def formations(self) -> list[FormationAnswer]:
        """Return all decisions, the latest first."""
        found = self.connection.read("GET", f"{self._path}/formations")
        return cast("list[FormationAnswer]", found)

    def publish(self, number: int) -> FormationAnswer:
        """Publish a draft: each member sees its part, which cannot be taken back."""
        path = f"{self._path}/formations/{number}/publish"
        return cast("FormationAnswer", self.connection.read("POST", path))

    def explain(self, number: int, member: str, other: str) -> str:
        """Return why two members are together or apart. It may name competitors."""
        path = f"{self._path}/formations/{number}/explanations"
        found = self.connection.read("GET", path, member=member, other=other)
        return cast("list[ExplanationAnswer]", found)[0]["sentence"]

    def what_if(
        self,
        number: int,
        *,
        add: Iterable[tuple[str, str]] = (),
        remove: Iterable[tuple[str, str]] = (),
        leaves: Iterable[str] = (),
    ) -> WhatIfAnswer:
        """Return the effect of other competition, or of members that leave; nothing is stored."""
        body = {"add": list(add), "remove": list(remove), "leaves": list(leaves)}
        path = f"{self._path}/formations/{number}/what-if"
        return cast("WhatIfAnswer", self.connection.read("POST", path, body))

    def save_certificate(self, number: int, path: FilePath) -> None:
        """Save the whole certificate of a decision. It names competitors: not for members."""
        where = f"{self._path}/formations/{number}/certificate"
        write_bytes(path, self.connection.ask("GET", where), private=True)

    def train(self, engine: str = "simulation", **plan: object) -> "ManagedRun":
        """Start training by the latest published decision.

        `plan` has the keys of ``[training]`` in a ``consortium.toml``, and `source`: the data of
        a simulation.
        """
        return self._start("training", engine, plan)

    def _start(self, kind: str, engine: str, plan: Mapping[str, object]) -> "ManagedRun":
        body = {"kind": kind, "engine": engine, "plan": dict(plan)}
        made = cast("RunAnswer", self.connection.read("POST", f"{self._path}/runs", body))
        return self.run(made["number"])

    def run(self, number: int) -> "ManagedRun":
        """Return the run with a number."""
        return ManagedRun(self.connection, f"{self._path}/runs/{number}")

    def runs(self) -> list[RunAnswer]:
        """Return all runs, the latest first."""
        return cast("list[RunAnswer]", self.connection.read("GET", f"{self._path}/runs"))


class ManagedRun:
    """One run, as the manager sees it."""

    def __init__(self, connection: Connection, path: str) -> None:
        self.connection, self._path = connection, path

    def progress(self) -> RunAnswer:
        """Return its state and progress."""
        return cast("RunAnswer", self.connection.read("GET", self._path))

    def wait(
        self, every: float = 1.0, told: Callable[[RunAnswer], object] | None = None
    ) -> RunAnswer:
        """Wait until it has finished, and return its last state.

        Parameters
        ----------
        every : float
            Seconds between two looks.
        told : callable, optional
            Called with each state that differs from the one before.

        Raises
        ------
        ClientError
            If it failed or was cancelled.
        """
        last: RunAnswer | None = None
        while True:
            now = self.progress()
            if told is not None and now != last:
                told(now)
            last = now
            if now["state"] in ENDED:
                break
            time.sleep(every)
        if now["state"] != "finished":
            reason = f": {now['error']}" if now["error"] else ""
            raise ClientError(f"run {now['number']} {_ending(now['state'])}{reason}")
        return now

    def cancel(self) -> None:
        """Cancel it."""
        self.connection.ask("POST", f"{self._path}/cancel")

    def save_report(self, path: FilePath) -> None:
        """Save the manager's report. It names competitors: not for members."""
        write_bytes(path, self.connection.ask("GET", f"{self._path}/report"), private=True)


def _ending(state: str) -> str:
    return "was cancelled" if state == "cancelled" else state
