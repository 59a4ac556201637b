"""Whether a run could begin, found out before it is queued, where all members would see it fail."""

import logging
from dataclasses import replace
from threading import Lock

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.worker_process import ProcessOfItsOwn
from fedegoists.coordinator.runs import decided_pipeline
from fedegoists.coordinator.runs.run_task import RunTask
from fedegoists.errors import FedEgoistsError

__all__ = ["Beginning"]


class Beginning:
    """Begins runs as their workers do and stops there, one at a time.

    What training needs is loaded in a process of its own, which ends afterwards: it takes more
    memory than all the rest.
    """

    def __init__(self) -> None:
        self._process = ProcessOfItsOwn()
        self._lock = Lock()

    def check(self, task: RunTask) -> None:
        """Refuse a run that would fail at its beginning.

        Raises
        ------
        ConflictError
            With what the run would have failed with.
        """
        # The decision decides nothing here, and one that was looked at cannot be sent.
        sent = replace(task, formation=None)
        # Whoever waited would keep a thread from answering members.
        if not self._lock.acquire(blocking=False):
            raise ConflictError("another run is being tried out; ask again in a few seconds")
        try:
            self._process.call(decided_pipeline.check, sent)
        except FedEgoistsError as error:
            raise ConflictError(str(error)) from None
        except Exception as error:
            log = logging.getLogger("fedegoists.coordinator")
            log.exception("a run could not begin")
            raise ConflictError(f"unexpected: {type(error).__name__}; see the log") from None
        finally:
            self._process.rest()
            self._lock.release()

    def close(self) -> None:
        """End what is being checked; nothing is checked any more."""
        self._process.close()
