"""The process that works on one run.

It reads its instructions from its standard input, and ends when that closes: the service that
started it has then ended, and will start another worker that resumes the run.
"""

import errno
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedegoists.coordinator.coordinator_errors import FullStoreError, UnavailableStoreError
from fedegoists.coordinator.runs import decided_pipeline, run_records
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.database_tables import RunRow
from fedegoists.errors import FedEgoistsError

SECONDS_BETWEEN_NOTES = 0.3

HELD_UP = 75
"""Exit status of a worker that a full disk, or a database out of reach, kept from going on."""


class _StoppedError(Exception):
    """The run was cancelled."""


class RunProgress:
    """Writes the progress of a run to the store, a few times a second; a `Progress`.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, store: CoordinatorStore, run_id: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._run_id, self._clock = store, run_id, clock
        self._noted = -SECONDS_BETWEEN_NOTES
        self._last = ("", 0, 0, "")
        self._waiting = False

    def __call__(self, stage: str, what: str, done: int, total: int, remark: str) -> None:
        """Note the progress of a stage."""
        self._note(f"{stage}: {what}" if what else stage, done, total, remark, waiting=False)

    def message(self, text: str, *, waiting: bool = False) -> None:
        """Note a message beside the last progress, or that the run waits."""
        stage, done, total, _ = self._last
        waiting = waiting or self._waiting
        self._note("waiting" if waiting else stage, done, total, text, waiting=waiting)

    def _note(self, stage: str, done: int, total: int, remark: str, *, waiting: bool) -> None:
        before, self._last, self._waiting = self._last, (stage, done, total, remark), waiting
        # A message without progress, such as a silo that is away, is never passed over.
        may_wait = stage == before[0] and (done != before[1] or remark == before[3])
        now = self._clock()
        if may_wait and now < self._noted + SECONDS_BETWEEN_NOTES:
            return
        self._noted = now
        note = (self._store, self._run_id, stage, done, total, remark)
        if not run_records.note_progress(*note, waiting=waiting):
            raise _StoppedError


def work_on(store: CoordinatorStore, run_id: int, data: Path, kit: Path | None = None) -> None:
    """Do a run, and record its result.

    Raises
    ------
    Exception
        If `is_passing` is true for it. The run has not ended then; another worker resumes it.
    """
    try:
        with store.read() as session:
            run = session.get_one(RunRow, run_id)
            run_records.check_may_begin(session, run)
            task = run_records.task_for(session, run, data, kit)
            kind = run.kind
        progress = RunProgress(store, run_id)
        progress("beginning", "", 0, 0, "")
        if kind == "benefit":
            run_records.finish(store, run_id, learned=decided_pipeline.learn(task, progress))
        else:
            decided_pipeline.train(task, progress)
            run_records.finish(store, run_id)
    except _StoppedError:
        return
    except FedEgoistsError as error:
        if is_passing(error):
            raise
        run_records.finish(store, run_id, error=str(error))
    except Exception as error:
        if is_passing(error):
            raise
        logging.getLogger("fedegoists.coordinator").exception("run %s failed", run_id)
        run_records.finish(store, run_id, error=f"unexpected: {type(error).__name__}; see the log")


def is_passing(error: BaseException) -> bool:
    """Whether a trouble is expected to pass: a disk without room, a database that is away."""
    if isinstance(error, FullStoreError | UnavailableStoreError):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    before = error.__cause__ or error.__context__  # also of errors raised "from None"
    return before is not None and is_passing(before)


def main() -> None:
    """Read one line of JSON with database, run, data and kit; work until done or orphaned."""
    wanted = json.loads(sys.stdin.readline())
    os.umask(0o077)  # all files are for this user only

    def leave_when_orphaned() -> None:
        sys.stdin.read()
        os._exit(3)

    def leave_when_told(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is leaving already
        sys.exit(128 + signal.SIGTERM)  # so that context managers close, such as jobs elsewhere

    threading.Thread(target=leave_when_orphaned, daemon=True).start()
    signal.signal(signal.SIGTERM, leave_when_told)
    logging.basicConfig(level=logging.WARNING)
    status = 0
    try:
        store = CoordinatorStore(wanted["database"])
        try:
            kit = wanted["kit"]
            work_on(store, wanted["run"], Path(wanted["data"]), None if kit is None else Path(kit))
        finally:
            store.close()
    except Exception as error:
        if not is_passing(error):
            raise
        logging.getLogger("fedegoists.coordinator").warning("held up: %s", error)
        status = HELD_UP
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)  # threads of a FLARE session would keep this process for seconds


if __name__ == "__main__":
    main()
