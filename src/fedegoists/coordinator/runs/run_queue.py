"""The queue of runs: one run at a time, each in a process of its own."""

import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from fedegoists.coordinator.coordinator_errors import ConflictError, StoreError
from fedegoists.coordinator.domain.consortia import close_due, consortium_with
from fedegoists.coordinator.domain.worker_process import WorkerProcess
from fedegoists.coordinator.runs import decided_pipeline, run_records
from fedegoists.coordinator.runs.run_orders import LOCAL_ONLY, Reach, RunOrder, RunTask
from fedegoists.coordinator.runs.run_worker import HELD_UP
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import ENDED
from fedegoists.coordinator.store.database_tables import RunRow
from fedegoists.errors import FedEgoistsError

log = logging.getLogger("fedegoists.coordinator")

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_AFTER_TROUBLE = 5.0
STARTS = 5
"""Deaths of a worker in a row, without progress, after which its run fails."""

SECONDS_TO_LEAVE = 10.0
"""Time for a terminated worker to close its connections, before it is killed."""


class RunQueue:
    """A thread that works on the queued runs, and first resumes interrupted ones."""

    def __init__(self, store: CoordinatorStore, data: Path, reach: Reach = LOCAL_ONLY) -> None:
        self.store, self.data, self.reach = store, data, reach
        self._preflight = WorkerProcess()
        self._one_preflight = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runs", daemon=True)
        self._deaths: dict[int, int] = {}
        self._furthest: dict[tuple[int, str], int] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether the thread died, though it was not stopped."""
        begun = self._thread.ident is not None
        return begun and not self._thread.is_alive() and not self._stop.is_set()

    def enqueue(self, by: str, consortium_id: int, order: RunOrder) -> RunRow:
        """Queue a run, if it may be ordered now and could begin."""
        with self.store.read() as session:
            found = consortium_with(session, consortium_id)
            run = run_records.ordered_run(session, found, order, self.reach)
            task = run_records.task_for(session, run, self.data, self.reach.kit)
        self._check(task)  # takes seconds, in which others may write
        with self.store.write() as session:
            found = consortium_with(session, consortium_id)
            run = run_records.enqueue(session, by, found, order, self.reach)
        self._wake.set()
        return run

    def _check(self, task: RunTask) -> None:
        """Refuse a run that would fail at its beginning, before members see it fail.

        A worker process begins the run as its own worker would, and ends afterwards: what training
        needs takes more memory than the whole service.
        """
        # To wait here would keep a thread from answering members.
        if not self._one_preflight.acquire(blocking=False):
            raise ConflictError("another run is being tried out; ask again in a few seconds")
        try:
            # The decision does not matter, and one whose certificate is cached cannot be sent.
            self._preflight.call(decided_pipeline.check, replace(task, formation=None))
        except FedEgoistsError as error:
            raise ConflictError(str(error)) from None
        except Exception as error:
            log.exception("a run could not begin")
            raise ConflictError(f"unexpected: {type(error).__name__}; see the log") from None
        finally:
            self._preflight.rest()
            self._one_preflight.release()

    def stop(self) -> None:
        """Stop the thread and interrupt its run, which the next start resumes."""
        self._stop.set()
        self._wake.set()
        self._preflight.close()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                close_due(self.store)
                with self.store.read() as session:
                    run = run_records.next_run(session)
                if run is not None:
                    self._do(run)
                    continue
            except StoreError as error:
                log.error("the runs wait: %s", error)
                self._stop.wait(SECONDS_AFTER_TROUBLE)
            except Exception:  # such as no memory for a process; the runs must go on
                log.exception("the runs wait: something unexpected")
                self._stop.wait(SECONDS_AFTER_TROUBLE)
            self._wake.wait(SECONDS_BETWEEN_LOOKS)
            self._wake.clear()

    def _do(self, run: RunRow) -> None:
        log.info("run %s begins or is resumed", run.id)
        if run.started is not None:  # until its process has started
            again = (self.store, run.id, "waiting", run.done, run.total, "is being resumed")
            run_records.note_progress(*again, waiting=True)
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
            ended = self._watch(run, worker)
        if self._stop.is_set() or worker.returncode == 0:
            return
        if ended and worker.returncode in (-signal.SIGTERM, -signal.SIGKILL):
            log.info("run %s is %s; its worker did not leave and was ended", run.id, ended)
            return
        if worker.returncode == HELD_UP:
            log.warning("run %s is held up: no room on the disk, or no database", run.id)
            self._note_held_up(run)
            self._stop.wait(SECONDS_AFTER_TROUBLE)
            return
        log.error("the worker of run %s ended with %s", run.id, worker.returncode)
        deaths = self._died(run.id)
        if deaths >= STARTS:
            run_records.finish(self.store, run.id, error="its process died again and again")
        else:
            self._stop.wait(0.1 * 2**deaths)

    def _note_held_up(self, run: RunRow) -> None:
        """Say that a run waits, if that can be written."""
        with contextlib.suppress(StoreError):
            with self.store.read() as session:
                now = session.get(RunRow, run.id)
            done, total = (0, 0) if now is None else (now.done, now.total)
            why = "for room on the disk, or for the database"
            run_records.note_progress(self.store, run.id, "waiting", done, total, why, waiting=True)

    def _died(self, run_id: int) -> int:
        """Return how often in a row the worker of a run died without progress."""
        with self.store.read() as session:
            now = session.get(RunRow, run_id)
        stage, done = ("", 0) if now is None else (now.stage, now.done)
        further = done > self._furthest.get((run_id, stage), -1)
        if further:
            self._furthest[run_id, stage] = done
        self._deaths[run_id] = 1 if further else self._deaths.get(run_id, 0) + 1
        return self._deaths[run_id]

    def _watch(self, run: RunRow, worker: "subprocess.Popen[str]") -> str | None:
        """Wait for the worker; end it if its run has ended or the service stops.

        Returns
        -------
        str or None
            The state of the run, if its worker was ended here because of it.
        """
        while worker.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(SECONDS_BETWEEN_LOOKS)
            if self._stop.is_set():
                self._end(worker, patience=0.0)
            else:
                try:
                    close_due(self.store)
                    with self.store.read() as session:
                        now = session.get(RunRow, run.id)
                    if worker.poll() is None and (now is None or now.state in ENDED):
                        self._end(worker)
                        return "removed" if now is None else now.state
                except StoreError as error:
                    log.error("the state of run %s is not known: %s", run.id, error)
        return None

    @staticmethod
    def _end(worker: "subprocess.Popen[str]", patience: float = 5.0) -> None:
        """Give a worker time to end by itself, then terminate it, then kill it."""
        for seconds, act in ((patience, worker.terminate), (SECONDS_TO_LEAVE, worker.kill)):
            try:
                worker.wait(seconds)
            except subprocess.TimeoutExpired:
                act()
            else:
                return
