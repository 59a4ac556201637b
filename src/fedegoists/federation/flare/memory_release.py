"""Memory that stays flat: what a carried message leaves behind is collected at once.

FLARE's calls leave objects that refer to each other and hold whole messages. Python looks for such
cycles when many objects were made, not when large ones were, and so would keep hundreds of them.
Besides, FLARE remembers every message that it has sent for five minutes, up to 10,000 of them, so
that it can tell what a late error is about: about a kilobyte each. It keeps a thread for every
message that it has received, for as long as its sender may send it again: hundreds of them where
rounds are short. And the C library keeps pages that messages have left between others.
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
from typing import Any

from nvflare.fuel.f3.streaming import byte_receiver, byte_streamer

__all__ = ["Later", "MemoryRelease"]

EVERY = 8
"""Messages between two collections."""

OLD = 8
"""Of so many collections, one looks at old objects, too."""

REMEMBERED = 256
"""Messages sent of which FLARE remembers where they went."""


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
            # The young are soon looked through; whoever was in use then has grown old.
            gc.collect(2 if number % (EVERY * OLD) == 0 else 1)
            if self._trim is not None:
                self._trim(0)


@functools.cache
def _prepare() -> None:
    """Have FLARE keep less, once in a process."""
    byte_streamer.MAX_STREAM_ERROR_CONTEXTS = REMEMBERED
    forget_in_one_thread(Later())
    gc.collect()
    gc.freeze()  # what is here now stays anyway: collections need not look at it again


def _trimmer() -> Callable[[int], Any] | None:
    """Return what gives free pages back to the system: glibc's, others keep less or cannot."""
    own = ctypes.CDLL(None) if sys.platform == "linux" else None
    trim: Callable[[int], Any] | None = getattr(own, "malloc_trim", None)
    return trim


class Waiting:
    """Something that is to be done later, unless it is cancelled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do nothing when the time has come."""
        self.action = None


class Later:
    """Does things later, all in one thread."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Waiting]] = []
        self._numbers = itertools.count()
        self._added = threading.Condition()
        threading.Thread(target=self._run, name="later", daemon=True).start()

    def after(self, seconds: float, action: Callable[[], None]) -> Waiting:
        """Do something after some seconds."""
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
                except Exception:  # what fails keeps nothing else from being done
                    logging.getLogger(__name__).exception("something to be done later failed")
            del action  # and what it holds


def forget_in_one_thread(later: Later) -> None:
    """Have FLARE forget received messages in one thread, and not in one for each of them."""

    def schedule(task: Any, ttl: float | None = None) -> None:
        with task.stop_lock:
            if task.cleanup_timer is None:
                seconds = task.completed_task_ttl if ttl is None else ttl
                task.cleanup_timer = later.after(seconds, task._remove_task)

    byte_receiver.RxTask._schedule_remove_task = schedule
