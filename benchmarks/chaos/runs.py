"""Queued runs whose coordinator and workers are killed; they end with the undisturbed bytes."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2 as httpx
import psutil

from benchmarks.chaos.machine import SmallDisk, marked, wait_until
from benchmarks.chaos.service import CoordinatorProgram, bearer
from benchmarks.chaos.tally import Tally
from tests.coordinator.banks import BANKS, with_banks

__all__ = ["QueuedRuns", "WorkerKiller", "kill_among_runs"]

DEATHS = 3
"""Kills of a worker without progress in between; at five the coordinator gives a run up."""

TO_FINISH = 900.0
QUEUED = 4
"""Acknowledged runs that have not finished, at most; one of them is worked on."""

DISK = 96
COMPARED = 2
"""Runs that are repeated without disturbance at the end."""


class QueuedRuns:
    """A decided consortium, its runs that were acknowledged, and what they must become."""

    def __init__(
        self,
        service: CoordinatorProgram,
        manager: str,
        names: Sequence[str],
        order: dict,
        name: str = "Disturbed",
    ) -> None:
        self.service, self.manager, self.order = service, manager, order
        self.tally = service.tally
        self.plans: dict[int, dict] = {}
        self.finished: set[int] = set()
        self.failed: set[int] = set()
        client, head = service.client, bearer(manager)
        made = client.post("/api/consortia", json={"name": name}, headers=head)
        self.id = made.json()["id"]
        self.api = f"/api/consortia/{self.id}"
        self.tokens = {}
        for member in names:
            invited = client.post(f"{self.api}/members", json={"name": member}, headers=head)
            self.tokens[member] = service.accept(invited.json()["invitation"])
        edges = [[a, b, 1.0] for a, b in itertools.permutations(names, 2)]
        for send, path, body in (
            (client.post, "reports/close", None),
            (client.put, "benefit", {"edges": edges}),
            (client.post, "formations", {}),
        ):
            answer = send(f"{self.api}/{path}", json=body, headers=head)
            assert answer.is_success, answer.text

    def enqueue(self, plan: dict) -> None:
        """Ask for a run; keep it if it was acknowledged."""
        body = {**self.order, "plan": {**self.order.get("plan", {}), **plan}}
        with contextlib.suppress(httpx.TransportError):
            answer = self.service.client.post(
                f"{self.api}/runs", json=body, headers=bearer(self.manager), timeout=120
            )
            if answer.status_code == 201:
                self.plans[answer.json()["number"]] = plan
                self.tally.note("runs acknowledged")
            else:
                self.tally.note(f"runs refused with {answer.status_code}")

    def states(self) -> dict[int, dict]:
        """Return all runs by their numbers."""
        answer = self.service.get(f"{self.api}/runs", self.manager)
        return {run["number"]: run for run in answer.json()} if answer.is_success else {}

    def verify(self) -> dict[int, dict]:
        """Check that no acknowledged run is lost, failed, or not finished any more."""
        states = self.states()
        for number in list(self.plans):
            run = states.get(number)
            if self.tally.check("acknowledged runs are kept", run is not None, number):
                if number not in self.failed:  # each is told once
                    self.tally.check("runs do not fail", run["state"] != "failed", run)
                if run["state"] == "failed":
                    self.failed.add(number)
                if number in self.finished:
                    self.tally.check("finished runs stay finished", run["state"] == "finished", run)
                if run["state"] == "finished":
                    self.finished.add(number)
        self.service.check_log(self.manager)
        return states

    @property
    def open(self) -> int:
        """Acknowledged runs that have not finished."""
        return len(self.plans.keys() - self.finished)

    def folder(self, number: int) -> Path:
        """Return the folder of a run."""
        return self.service.data / "runs" / f"consortium-{self.id}" / f"run-{number}"

    def check_models(self, number: int) -> dict[str, bytes]:
        """Check that every member gets a model of finite weights; return the models."""
        from safetensors.torch import load

        models = {}
        for name, token in self.tokens.items():
            answer = self.service.get(f"/api/me/runs/{number}/model", token)
            if self.tally.check("members get their models", answer.is_success, answer.text[:300]):
                models[name] = answer.content
                finite = all(bool(t.isfinite().all()) for t in load(answer.content).values())
                self.tally.check("models are finite", finite, (number, name))
        return models


def workers(mark: str) -> list[psutil.Process]:
    """Return the run workers of an instance."""
    return [one for one in marked(mark) if "run_worker" in " ".join(one.cmdline())]


class WorkerKiller:
    """Kills workers, but not so often without progress that the run is given up."""

    def __init__(self, runs: QueuedRuns) -> None:
        self._runs, self._progress, self._deaths = runs, None, 0

    def kill(self, mark: str, kind: str = "run worker") -> bool:
        """Kill the workers of an instance; return whether there were any to kill."""
        found = workers(mark)
        if not found:
            return False
        progress = [
            (number, run["done"]) for number, run in self._runs.states().items() if run["done"]
        ]
        if progress != self._progress:
            self._progress, self._deaths = progress, 0
        if self._deaths >= DEATHS:
            return False
        self._deaths += 1
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
                self._runs.tally.killed(kind)
        return True


def plans():
    """Yield plans of which no two share a result."""
    for steps in itertools.count(40, 10):
        yield {"steps": steps}


def compared(runs: QueuedRuns, again: QueuedRuns, tally: Tally) -> None:
    """Repeat some runs without disturbance and compare bytes."""
    for number in sorted(runs.finished)[:COMPARED]:
        again.enqueue(runs.plans[number])
        repeated = max(again.plans, default=0)
        if not tally.check("undisturbed runs are accepted", repeated > 0, "see the log"):
            return
        ended = wait_until(lambda n=repeated: n in again.finished or not again.verify(), TO_FINISH)
        tally.check("undisturbed runs finish", ended and repeated in again.finished, repeated)
        here, there = runs.check_models(number), again.check_models(repeated)
        for name in here:
            same = here[name] == there.get(name)
            tally.check("final bytes equal those of an undisturbed run", same, (number, name))
        tables = [one.folder(n) / "metrics.csv" for one, n in ((runs, number), (again, repeated))]
        same = tables[0].read_bytes() == tables[1].read_bytes()
        tally.check("metrics equal those of an undisturbed run", same, number)


def kill_among_runs(folder: Path, tally: Tally, seed: int, goal) -> None:
    """Kill the coordinator and its workers while simulated runs are queued and worked on."""
    rng = random.Random(seed)
    data, mark = folder / "data", f"runs-{seed}"
    disk = SmallDisk(data, DISK)
    with_banks(data)
    service = CoordinatorProgram(data, mark, tally)
    order = {
        "engine": "simulation",
        "plan": {"source": "banks", "methods": ["local", "fedegoists"], "seeds": 1},
    }
    stop = threading.Event()
    filling = (stop, random.Random(rng.random()), tally)
    try:
        assert service.start(), service.log.read_text()[-2000:]
        manager = service.accept(service.invitation())
        runs = QueuedRuns(service, manager, BANKS, order)
        threading.Thread(target=disk.fill_now_and_then, args=filling, daemon=True).start()
        kept = _disturbed(service, runs, rng, goal)
        stop.set()
        if not kept:
            return
        if not runs.plans:
            runs.enqueue({"steps": 40})
        done = wait_until(lambda: runs.verify() and not runs.open, TO_FINISH, 1.0)
        tally.check("all acknowledged runs finish", done, runs.states())
        again = QueuedRuns(service, manager, BANKS, order, name="Undisturbed")
        compared(runs, again, tally)
        service.check_log(manager)
    finally:
        stop.set()
        service.end()
        disk.close()


def _disturbed(service: CoordinatorProgram, runs: QueuedRuns, rng: random.Random, goal) -> bool:
    """Queue runs and kill until the goal is reached; return whether the coordinator lives."""
    tally, killer, wanted = runs.tally, WorkerKiller(runs), plans()
    while not goal():
        asking = None
        if runs.open < QUEUED:
            asking = threading.Thread(target=runs.enqueue, args=(next(wanted),))
            asking.start()
        time.sleep(rng.uniform(0.5, 8.0))
        clock = service.program.clock
        if clock is not None and rng.random() < 0.3 and clock.jump(rng.randint(-48, 48)):
            tally.fault("clock of a coordinator with runs moved")
        if asking is not None and rng.random() < 0.7:
            asking.join()  # to be acknowledged takes as long as a run's worker to start
        if rng.random() < 0.6 and killer.kill(service.mark):
            continue
        queued = runs.open > 1  # one of them is worked on
        service.kill(f"coordinator service{' with runs queued' if queued else ''}")
        if asking is not None:
            asking.join()
        if not tally.check("the coordinator starts again", service.start(), "see its log"):
            return False
        runs.verify()
    return True
