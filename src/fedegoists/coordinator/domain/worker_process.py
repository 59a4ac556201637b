"""A process for what takes long, so that nobody else waits; it never outlives this one."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Lock, Thread
from typing import ParamSpec, TypeVar

from fedegoists.coordinator.coordinator_errors import ConflictError

__all__ = ["ProcessOfItsOwn"]

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class ProcessOfItsOwn:
    """Calls functions in another process, one after the other; it is started when it is needed."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False
        self._lock = Lock()

    def call(
        self, function: Callable[Asked, Answer], *args: Asked.args, **kwargs: Asked.kwargs
    ) -> Answer:
        """Return what a function of a module returns.

        Raises
        ------
        ConflictError
            If the process ends before, or the coordinator stops.
        """
        with self._lock:
            if self._closed:
                raise ConflictError("the coordinator stops; ask again when it is back")
            pool = self._pool or self._started()
            try:
                future = pool.submit(function, *args, **kwargs)
            except BrokenProcessPool:  # it was lost while nobody asked
                pool.shutdown(wait=False)
                pool = self._started()
                future = pool.submit(function, *args, **kwargs)
        try:
            return future.result()
        except (BrokenProcessPool, CancelledError):
            with self._lock:
                if self._pool is pool:
                    self._pool = None  # the next one who asks gets a new process
            pool.shutdown(wait=False)
            raise ConflictError(
                "the process that worked on this has ended, as for want of memory or because the "
                "coordinator stops; nothing was decided. Ask again"
            ) from None

    def _started(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_as_a_helper)
        return self._pool

    def rest(self) -> None:
        """Free the memory of a process that has done its work; another one is started if needed."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def close(self) -> None:
        """End the process, whatever it does; nothing is called any more."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is None:
            return
        # A pool has no other way to end what is being worked on, and this process would wait.
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def _as_a_helper() -> None:
    """Have this process end when the one that started it does, however that happens.

    Ctrl-C reaches it, too, where both were started from a terminal. It asks the service to stop,
    not this process to come to an answer sooner.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(3)

    Thread(target=leave, daemon=True).start()
