"""Releases the memory that carried messages leave behind, so that it stays flat.

FLARE's calls leave reference cycles that hold whole messages. Python collects cycles after many
allocations, not after large ones, and so would keep hundreds of messages.
Besides, FLARE keeps the context of every message sent for five minutes, up to 10,000 of about a
kilobyte each, to explain late errors. It keeps a thread for every message received, for as long as
its sender may resend it: hundreds of threads where rounds are short. And the C library keeps free
pages between used ones.
"""

import ctypes
import functools
import gc
import heapq
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable

from nvflare.fuel.f3.streaming import byte_receiver, byte_streamer

EVERY = 8
"""Messages between two collections."""

OLD = 8
"""One of this number of collections also looks at old objects."""

REMEMBERED = 256
"""Messages sent whose context FLARE keeps."""


class MemoryRelease:
    """Counts messages, and releases the memory they left every few messages."""

    def __init__(self) -> None:
        _prepare()
        self._numbers = itertools.count(1)
        self._trim = _trimmer()

    def message_done(self) -> None:
        """Count a message."""
        number = next(self._numbers)
        if number % EVERY == 0:
            # Young objects are quickly examined; objects in use at that time have become old.
            gc.collect(2 if number % (EVERY * OLD) == 0 else 1)
            if self._trim is not None:
                self._trim(0)


@functools.cache
def _prepare() -> None:
    """Have FLARE keep less, once in a process."""
    byte_streamer.MAX_STREAM_ERROR_CONTEXTS = REMEMBERED
    forget_in_one_thread(Later())
    gc.collect()
    gc.freeze()  # objects that exist now stay anyway: collections need not examine them again


def _trimmer() -> Callable[[int], object] | None:
    """Return glibc's function that gives free pages back to the system, where there is one."""
    own = ctypes.CDLL(None) if sys.platform == "linux" else None
    trim: Callable[[int], object] | None = getattr(own, "malloc_trim", None)
    return trim


class Waiting:
    """An action that waits for its time and can be cancelled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the action."""
        self.action = None


class Later:
    """A timer that runs all its actions in one thread."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Waiting]] = []
        self._numbers = itertools.count()
        self._added = threading.Condition()
        threading.Thread(target=self._run, name="later", daemon=True).start()

    def after(self, seconds: float, action: Callable[[], None]) -> Waiting:
        """Run an action after some seconds."""
        waiting = Waiting(action)
        with self._added:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), waiting))
            if self._due[0][2] is waiting:
                self._added.notify()
        return waiting

    def _run(self) -> None:
        while True:
            with self._added:
                while not self._due or self._due[0][0] > time.monotonic():
                    left = self._due[0][0] - time.monotonic() if self._due else None
                    self._added.wait(left and min(left, threading.TIMEOUT_MAX))
                action = heapq.heappop(self._due)[2].action
            if action is not None:
                try:
                    action()
                except Exception:  # a failing action must not stop the others
                    logging.getLogger(__name__).exception("a delayed action failed")
            del action  # and the objects that it holds


def forget_in_one_thread(later: Later) -> None:
    """Have FLARE forget received messages in one thread instead of one thread for each."""

    def schedule(task: byte_receiver.RxTask, ttl: float | None = None) -> None:
        with task.stop_lock:
            if task.cleanup_timer is None:
                seconds = task.completed_task_ttl if ttl is None else ttl
                task.cleanup_timer = later.after(seconds, task._remove_task)

    byte_receiver.RxTask._schedule_remove_task = schedule
