"""A worker process for long computations; it never outlives the process that started it."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Lock, Thread
from typing import ParamSpec, TypeVar

from fedegoists.coordinator.coordinator_errors import ConflictError

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class WorkerProcess:
    """Calls functions in another process, one at a time; it is started when needed."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False
        self._lock = Lock()

    def call(
        self, function: Callable[Asked, Answer], *args: Asked.args, **kwargs: Asked.kwargs
    ) -> Answer:
        """Call a function of a module in the worker, and return its result.

        Raises
        ------
        ConflictError
            If the worker dies, or the coordinator stops.
        """
        with self._lock:
            if self._closed:
                raise ConflictError("the coordinator stops; ask again when it is back")
            pool = self._pool or self._started()
            try:
                future = pool.submit(function, *args, **kwargs)
            except BrokenProcessPool:  # the worker died while it was idle
                pool.shutdown(wait=False)
                pool = self._started()
                future = pool.submit(function, *args, **kwargs)
        try:
            return future.result()
        except (BrokenProcessPool, CancelledError):
            with self._lock:
                if self._pool is pool:
                    self._pool = None  # the next call starts a new worker
            pool.shutdown(wait=False)
            raise ConflictError(
                "the process that worked on this has ended, as for want of memory or because the "
                "coordinator stops; nothing was decided. Ask again"
            ) from None

    def _started(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_prepare_worker)
        return self._pool

    def rest(self) -> None:
        """End an idle worker to free its memory; the next call starts another."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def close(self) -> None:
        """End the worker, whatever it does; later calls are refused."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is None:
            return
        # A pool has no other way to interrupt its worker, and this process would wait for it.
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def _prepare_worker() -> None:
    """Make this worker end with the process that started it, however that ends.

    Ctrl-C in a terminal reaches both processes. It asks the service to stop, so the worker
    ignores it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(3)

    Thread(target=leave, daemon=True).start()
