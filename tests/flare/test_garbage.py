"""What FLARE remembers of messages that it has sent is bounded."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer

from fedegoists.federation.flare.garbage import REMEMBERED, Garbage


def test_flare_remembers_few_of_the_messages_it_has_sent(monkeypatch):
    monkeypatch.setattr("gc.freeze", lambda: None)  # the other tests' objects are no part of this
    Garbage()
    try:
        for number in range(2 * REMEMBERED):
            task = SimpleNamespace(
                sid=number, cell=None, target="server", channel="c", topic="t", headers={}
            )
            ByteStreamer._retain_error_context(task)
        assert len(ByteStreamer.error_context_map) == REMEMBERED
    finally:
        ByteStreamer.error_context_map.clear()
