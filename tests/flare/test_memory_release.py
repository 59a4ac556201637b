"""What FLARE keeps of messages that were sent and received is bounded."""

import gc
import platform
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer

from fedegoists.federation.flare.memory_release import EVERY, OLD, REMEMBERED, Later, MemoryRelease


@pytest.fixture
def garbage(monkeypatch):
    monkeypatch.setattr("gc.freeze", lambda: None)  # the other tests' objects are no part of this
    return MemoryRelease()


def test_flare_remembers_few_of_the_messages_it_has_sent(garbage):
    try:
        for number in range(2 * REMEMBERED):
            task = SimpleNamespace(
                sid=number, cell=None, target="server", channel="c", topic="t", headers={}
            )
            ByteStreamer._retain_error_context(task)
        assert len(ByteStreamer.error_context_map) == REMEMBERED
    finally:
        ByteStreamer.error_context_map.clear()


def remembered(origin):
    return {number for sender, number in list(RxTask.rx_task_map) if sender == origin}


def test_received_messages_are_forgotten_in_time_and_without_threads_of_their_own(garbage):
    tasks = [RxTask(number, "a silo", cell=None, reliable=True) for number in range(100)]
    for task in tasks:
        task.completed_task_ttl = 0.05 if task.sid < 50 else 3600.0
        RxTask.rx_task_map[(task.origin, task.sid)] = task
    try:
        before = threading.active_count()
        for task in tasks[1:]:
            task.stop()
        assert threading.active_count() <= before
        assert not any(isinstance(task.cleanup_timer, threading.Timer) for task in tasks)
        deadline = time.monotonic() + 10
        while remembered("a silo") != {0, *range(50, 100)}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        tasks[99]._remove_task()  # by itself, before its time
        assert remembered("a silo") == {0, *range(50, 99)}
        assert tasks[99].cleanup_timer is None
    finally:
        for task in tasks:
            task._remove_task()


def test_things_are_done_in_the_order_in_which_they_are_due_unless_cancelled(caplog):
    later, done = Later(), []
    held, go, last = threading.Event(), threading.Event(), threading.Event()
    later.after(0.0, lambda: (held.set(), go.wait(10)))
    assert held.wait(10)
    later.after(0.004, last.set)
    later.after(0.003, lambda: done.append("second"))
    later.after(0.002, lambda: done.append("never")).cancel()
    later.after(0.001, lambda: done.append("first"))
    later.after(0.0, lambda: 1 / 0)
    later.after(1e12, lambda: done.append("at the end of days"))
    go.set()
    assert last.wait(10)
    assert done == ["first", "second"]
    assert "ZeroDivisionError" in caplog.text
    again = threading.Event()
    later.after(0.0, again.set)
    assert again.wait(10)


def test_memory_is_given_back_every_few_messages(garbage, monkeypatch):
    trimmed, collected = [], []
    monkeypatch.setattr(garbage, "_trim", trimmed.append)
    monkeypatch.setattr(gc, "collect", collected.append)
    for _ in range(EVERY * OLD + EVERY + 1):
        garbage.message_done()
    assert trimmed == [0] * (OLD + 1)
    assert collected == [1] * (OLD - 1) + [2, 1]
    monkeypatch.setattr(garbage, "_trim", None)  # a C library without it
    for _ in range(EVERY):
        garbage.message_done()
    assert len(collected) == OLD + 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is no glibc here")
def test_glibc_can_be_asked_to_give_memory_back(garbage):
    assert garbage._trim is not None
    assert garbage._trim(0) in (0, 1)
