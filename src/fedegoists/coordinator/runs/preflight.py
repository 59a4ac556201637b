"""Preflight check: whether a run could begin, before it is queued and members see it fail."""

import logging
from dataclasses import replace
from threading import Lock

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.worker_process import WorkerProcess
from fedegoists.coordinator.runs import decided_pipeline
from fedegoists.coordinator.runs.run_task import RunTask
from fedegoists.errors import FedEgoistsError

__all__ = ["Preflight"]


class Preflight:
    """Begins runs as their workers do and stops there, one at a time.

    It does so in a worker process that ends afterwards: what training needs takes more memory
    than the whole service.
    """

    def __init__(self) -> None:
        self._worker = WorkerProcess()
        self._lock = Lock()

    def check(self, task: RunTask) -> None:
        """Refuse a run that would fail at its beginning.

        Raises
        ------
        ConflictError
            With the error that the run would have failed with.
        """
        # The decision does not matter here, and one whose certificate is cached cannot be sent.
        sent = replace(task, formation=None)
        # To wait here would keep a thread from answering members.
        if not self._lock.acquire(blocking=False):
            raise ConflictError("another run is being tried out; ask again in a few seconds")
        try:
            self._worker.call(decided_pipeline.check, sent)
        except FedEgoistsError as error:
            raise ConflictError(str(error)) from None
        except Exception as error:
            log = logging.getLogger("fedegoists.coordinator")
            log.exception("a run could not begin")
            raise ConflictError(f"unexpected: {type(error).__name__}; see the log") from None
        finally:
            self._worker.rest()
            self._lock.release()

    def close(self) -> None:
        """Interrupt a check; later ones are refused."""
        self._worker.close()
