"""Repeated lines are counted and summed up."""

import io
import logging

from fedegoists.coordinator.throttled_log import LINES, MOST_KINDS, SECONDS, ThrottledHandler


class Log:
    def __init__(self):
        self.now = 0.0
        self.stream = io.StringIO()
        self.handler = ThrottledHandler(self.stream, clock=lambda: self.now)

    def say(self, message, *args, **extra):
        record = logging.LogRecord("x", logging.WARNING, "", 0, message, args, None)
        record.__dict__.update(extra)
        self.handler.handle(record)

    @property
    def lines(self):
        return self.stream.getvalue().splitlines()


def test_repeated_lines_are_counted_and_summed_up():
    log = Log()
    for k in range(1000):
        log.say("attack %s", k)
        log.say(f"socket {k} fails")  # formatted already; its digits do not make it new
    log.say("something else")
    assert len(log.lines) == 2 * LINES + 1
    assert log.lines[-1] == "something else"
    log.now += SECONDS
    log.say("attack %s", "again")
    rest = log.lines[2 * LINES + 1 :]
    assert rest == [
        f"{1000 - LINES} more lines in the last period like: x: attack %s",
        f"{1000 - LINES} more lines in the last period like: x: socket 0 fails",
        "attack again",
    ]


def test_the_end_of_the_log_sums_up_too():
    log = Log()
    for _ in range(LINES + 7):
        log.say("attack", kind="of one kind")
    log.handler.close()
    assert log.lines[-1] == "7 more lines in the last period like: x: of one kind"


def test_invented_kinds_do_not_fill_the_memory_or_the_log():
    log = Log()
    for k in range(3 * MOST_KINDS):
        log.say("line", kind="".join(chr(97 + int(digit)) for digit in str(k)))
    assert len(log.lines) == MOST_KINDS + LINES
