"""The process that works on one run.

It is told on its standard input what to do, and ends when that closes: whoever started it is then
gone, and will start another one that goes on.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fedegoists.coordinator.runs import run_records as records
from fedegoists.coordinator.runs.engines import engine_named
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.tables import RunRecord
from fedegoists.errors import FedEgoistsError

__all__ = ["main", "work_on"]

SECONDS_BETWEEN_NOTES = 0.3


class _StoppedError(Exception):
    """The run was cancelled."""


def work_on(store: Store, run_id: int, data: Path, kit: Path | None = None) -> None:
    """Do a run, and note how it went."""
    noted = 0.0
    last: tuple[str, int, str] = ("", 0, "")

    def progress(stage: str, done: int, total: int, remark: str, *, waiting: bool = False) -> None:
        nonlocal noted, last
        now = time.monotonic()
        # A remark that comes without progress, as that a silo is away, is not passed over.
        nothing_else = stage == last[0] and (done != last[1] or remark == last[2])
        last = (stage, done, remark)
        if now < noted + SECONDS_BETWEEN_NOTES and nothing_else:
            return
        noted = now
        if not records.note_progress(store, run_id, stage, done, total, remark, waiting=waiting):
            raise _StoppedError

    try:
        with store.read() as session:
            run = session.get(RunRecord, run_id)
            assert run is not None
            records.check_may_go_on(store, session, run)
            task = records.task_for(session, run, data, kit)
            kind, engine_name = run.kind, run.engine
        progress("beginning", 0, 0, "")
        engine = engine_named(engine_name)
        if kind == "benefit":
            records.finish(store, run_id, learned=engine.learn(task, progress))
        else:
            engine.train(task, progress)
            records.finish(store, run_id)
    except _StoppedError:
        return
    except FedEgoistsError as error:
        records.finish(store, run_id, error=str(error))
    except Exception as error:
        logging.getLogger("fedegoists.coordinator").exception("run %s failed", run_id)
        records.finish(store, run_id, error=f"unexpected: {type(error).__name__}; see the log")


def main() -> None:
    """Read one line of JSON with database, run, data and kit; work until done or left alone."""
    wanted = json.loads(sys.stdin.readline())

    def leave_when_alone() -> None:
        sys.stdin.read()
        os._exit(3)

    def leave_when_told(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is leaving already
        sys.exit(128 + signal.SIGTERM)  # through all that has to be closed, as jobs elsewhere

    threading.Thread(target=leave_when_alone, daemon=True).start()
    signal.signal(signal.SIGTERM, leave_when_told)
    logging.basicConfig(level=logging.WARNING)
    store = Store(wanted["database"])
    try:
        kit = wanted["kit"]
        work_on(store, wanted["run"], Path(wanted["data"]), None if kit is None else Path(kit))
    finally:
        store.close()


if __name__ == "__main__":
    main()
