"""Health shows a clock that is behind and a queue that is lost."""

import pytest

from tests.coordinator.served import founded, inside


def test_a_clock_behind_the_log_shows_in_health(sqlite_store, tmp_path, clock):
    with inside(sqlite_store, tmp_path) as (client, manager):
        founded(client, manager)
        clock.move(hours=-1)
        assert "clock is behind" in client.get("/health").json()["status"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lost_queue_of_runs_shows_in_health(sqlite_store, tmp_path, monkeypatch):
    def ends(_):
        raise SystemExit

    with inside(sqlite_store, tmp_path) as (client, _):
        assert client.get("/health").json() == {"status": "ok"}
        queue = client.app.state.service.queue
        monkeypatch.setattr("fedegoists.coordinator.runs.run_queue.close_due", ends)
        queue.start()
        queue._thread.join(30)
        answer = client.get("/health")
    assert (answer.status_code, "not worked on" in answer.json()["status"]) == (503, True)
