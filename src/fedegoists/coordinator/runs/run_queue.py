"""Working off the runs, one after the other, each in a process of its own."""

import contextlib
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

from fedegoists.coordinator.coordinator_errors import StoreError
from fedegoists.coordinator.domain.consortia import close_due, consortium_with
from fedegoists.coordinator.runs import run_records as records
from fedegoists.coordinator.runs.preflight import Beginning
from fedegoists.coordinator.runs.run_plan import RunPlan
from fedegoists.coordinator.runs.run_task import LOCAL_ONLY, Reach, RunKind
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.tables import RunRecord

__all__ = ["RunQueue"]

log = logging.getLogger("fedegoists.coordinator")

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_AFTER_TROUBLE = 5.0
STARTS = 5
"""A worker that dies so often in a row without having come further is given up."""

SECONDS_TO_LEAVE = 10.0
"""So long a worker that was told to stop may close what it has open, before it is killed."""


class RunQueue:
    """A thread that starts the next run when there is one, and goes on with interrupted ones."""

    def __init__(self, store: Store, data: Path, reach: Reach = LOCAL_ONLY) -> None:
        self.store, self.data, self.reach = store, data, reach
        self._beginning = Beginning()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runs", daemon=True)
        self._deaths: dict[int, int] = {}
        self._furthest: dict[tuple[int, str], int] = {}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether it was started and is gone, though nobody stopped it."""
        begun = self._thread.ident is not None
        return begun and not self._thread.is_alive() and not self._stop.is_set()

    def ask(
        self, by: str, consortium_id: int, kind: RunKind, engine: str, plan: RunPlan
    ) -> RunRecord:
        """Queue a run, if it can be asked for now and could begin."""
        wish = (kind, engine, plan)
        with self.store.read() as session:
            found = consortium_with(session, consortium_id)
            task = records.wished(self.store, session, found, *wish, self.data, self.reach)
        self._beginning.check(task)  # takes seconds, in which others may write
        with self.store.write() as session:
            found = consortium_with(session, consortium_id)
            run = records.enqueue(self.store, session, by, found, *wish, self.reach)
        self._wake.set()
        return run

    def stop(self) -> None:
        """Stop a run that is being worked on, so that the next start goes on with it."""
        self._stop.set()
        self._wake.set()
        self._beginning.close()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                close_due(self.store)
                with self.store.read() as session:
                    run = records.unfinished(session)
                if run is not None:
                    self._do(run)
                    continue
            except StoreError as error:
                log.error("the runs wait: %s", error)
                self._stop.wait(SECONDS_AFTER_TROUBLE)
            except Exception:  # such as no room for a process; nobody else would go on with them
                log.exception("the runs wait: something unexpected")
                self._stop.wait(SECONDS_AFTER_TROUBLE)
            self._wake.wait(SECONDS_BETWEEN_LOOKS)
            self._wake.clear()

    def _do(self, run: RunRecord) -> None:
        log.info("run %s begins or goes on", run.id)
        if run.started is not None:  # nobody works on it until its process has come up
            again = (self.store, run.id, "waiting", run.done, run.total, "is gone on with")
            records.note_progress(*again, waiting=True)
        kit = None if self.reach.kit is None else str(self.reach.kit)
        wanted = {"database": self.store.url, "run": run.id, "data": str(self.data), "kit": kit}
        # The address of a database may hold a password, which other users could read on a
        # command line, so it goes through the pipe.
        with subprocess.Popen(
            [sys.executable, "-m", "fedegoists.coordinator.runs.run_worker"],
            stdin=subprocess.PIPE,
            text=True,
        ) as worker:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(wanted) + "\n")
            worker.stdin.flush()
            self._watch(run, worker)
        if self._stop.is_set() or worker.returncode == 0:
            return
        log.error("the worker of run %s ended with %s", run.id, worker.returncode)
        deaths = self._died(run.id)
        if deaths >= STARTS:
            records.finish(self.store, run.id, error="its process died again and again")
        else:
            self._stop.wait(0.1 * 2**deaths)

    def _died(self, run_id: int) -> int:
        """Return how often in a row a worker died without having come further than before."""
        with self.store.read() as session:
            now = session.get(RunRecord, run_id)
        stage, done = ("", 0) if now is None else (now.stage, now.done)
        further = done > self._furthest.get((run_id, stage), -1)
        if further:
            self._furthest[run_id, stage] = done
        self._deaths[run_id] = 1 if further else self._deaths.get(run_id, 0) + 1
        return self._deaths[run_id]

    def _watch(self, run: RunRecord, worker: "subprocess.Popen[str]") -> None:
        """Wait for the worker; stop it if the run is cancelled or the service ends."""
        while worker.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(SECONDS_BETWEEN_LOOKS)
            if self._stop.is_set():
                self._end(worker, patience=0.0)
            else:
                try:
                    close_due(self.store)
                    with self.store.read() as session:
                        now = session.get(RunRecord, run.id)
                    if now is None or now.state in records.ENDED:
                        self._end(worker)
                except StoreError as error:
                    log.error("the state of run %s is not known: %s", run.id, error)

    @staticmethod
    def _end(worker: "subprocess.Popen[str]", patience: float = 5.0) -> None:
        """Give a worker a moment to end by itself, then tell it to, then kill it."""
        for seconds, act in ((patience, worker.terminate), (SECONDS_TO_LEAVE, worker.kill)):
            try:
                worker.wait(seconds)
            except subprocess.TimeoutExpired:
                act()
            else:
                return
