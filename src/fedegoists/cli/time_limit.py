"""The end of a command at its time limit, whatever it is doing.

The checks and searches look at the clock themselves and answer with what they have. Reading a
hostile file, or a computation without a clock, can still take longer. A thread then ends the
program: nothing was confirmed, and that is what it says.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE = 0.4
"""Seconds after the limit: enough for a check that looks at the clock itself to answer."""


@contextmanager
def ends_at_limit(seconds: float, *, as_json: bool) -> Iterator[None]:
    """Context manager that ends the program with exit status 1 a moment after a time limit."""
    timer = threading.Timer(seconds + GRACE, _end_program, (seconds, as_json))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_program(seconds: float, as_json: bool) -> None:
    message = (
        f"the time limit of {seconds:g} s ended the command before it had a result; nothing is "
        "confirmed. Give a longer --time-limit"
    )
    # Below all buffers: the main thread may be holding their locks.
    try:
        if as_json:
            os.write(1, f"{json.dumps({'error': message}, indent=2)}\n".encode())
        os.write(2, f"error: {message}\n".encode())
    finally:  # whether anybody reads it or not
        os._exit(1)
