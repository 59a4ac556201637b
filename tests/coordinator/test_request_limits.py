"""Limits of rate and size, by a clock that the tests move."""

import pytest

from fedegoists.coordinator.service.coordinator_service import Limits
from fedegoists.coordinator.service.request_identity import COOKIE
from tests.coordinator.served import bearer, founded, inside, inside_again


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


def test_too_many_and_too_large_requests_are_refused(sqlite_store, tmp_path, seconds):
    limits = Limits(requests_per_minute=60, failures_per_minute=3, body_bytes=1000)
    with inside(sqlite_store, tmp_path, limits, seconds) as (client, manager):
        head = bearer(manager)
        assert client.get("/api/consortia", headers=head).status_code == 200  # now it is known
        large = client.post("/api/consortia", content=b"x" * 2000, headers=head)
        assert large.status_code == 413

        def endless():
            for _ in range(10):
                yield b"x" * 200

        assert client.post("/api/consortia", content=endless(), headers=head).status_code == 413

        def answers(count):
            return [client.get("/api/consortia", headers=head).status_code for _ in range(count)]

        # Ten at once, of which two were too large, and one more for every second that passes.
        assert answers(10) == [200] * 8 + [429] * 2
        seconds.now += 2
        assert answers(4) == [200] * 2 + [429] * 2
        seconds.now += 3600
        assert answers(12) == [200] * 10 + [429] * 2
    with inside_again(sqlite_store, tmp_path, Limits(failures_per_minute=3), seconds) as client:
        wrong = [client.get("/api/me", headers=bearer(f"w{k}")).status_code for k in range(5)]
        assert wrong == [401] * 3 + [429] * 2
        seconds.now += 20
        assert client.get("/api/me", headers=bearer("w")).status_code == 401
        assert client.get("/api/me", headers=bearer("w")).status_code == 429


def test_a_limit_is_for_a_token_however_it_is_written(sqlite_store, tmp_path, seconds):
    limits = Limits(requests_per_minute=60)
    with inside(sqlite_store, tmp_path, limits, seconds) as (client, manager):
        seen = [
            client.get(
                "/api/consortia",
                headers={"Authorization": f"Bearer{' ' * k}{manager}", "Cookie": f"other={k}"},
            ).status_code
            for k in range(1, 16)
        ]
        assert seen == [200] * 11 + [429] * 4  # one before it was known
    with inside_again(sqlite_store, tmp_path, limits, seconds) as client:  # another cookie
        seen = [client.get("/login", headers={"Cookie": f"a={k}"}).status_code for k in range(5)]
        assert seen == [200] * 2 + [429] * 3


@pytest.mark.parametrize("header", ["Authorization", "Cookie"])
def test_wrong_tokens_are_counted_on_pages_too(sqlite_store, tmp_path, seconds, header):
    kind = "Bearer " if header == "Authorization" else f"{COOKIE}="
    limits = Limits(failures_per_minute=3)
    with inside_again(sqlite_store, tmp_path, limits, seconds) as client:
        seen = [
            client.get("/", headers={header: f"{kind}w{k}"}, follow_redirects=False).status_code
            for k in range(5)
        ]
    assert seen == [303] * 3 + [429] * 2


def test_wrong_tokens_do_not_keep_out_who_is_known(sqlite_store, tmp_path, seconds):
    limits = Limits(failures_per_minute=3)
    with inside(sqlite_store, tmp_path, limits, seconds) as (client, manager):
        consortium, tokens = founded(client, manager)
        head = bearer(tokens["East"])
        assert client.get("/api/me", headers=head).status_code == 200  # now it is known
        for k in range(3):
            assert client.get("/api/me", headers=bearer(f"w{k}")).status_code == 401
        assert client.get("/api/me", headers=bearer("w")).status_code == 429
        assert client.get("/api/me", headers=head).status_code == 200
        guess = client.post("/api/invitations/accept", json={"invitation": "w"}, headers=head)
        assert guess.status_code == 429
        path = f"/api/consortia/{consortium}/members/East"
        assert client.delete(path, headers=bearer(manager)).status_code == 204
        assert client.get("/api/me", headers=head).status_code == 401
        assert client.get("/api/me", headers=head).status_code == 429  # it is known no more


def test_invented_methods_do_not_fill_the_metrics(served):
    client, manager = served
    for k in range(5):
        assert client.request(f"INVENTED{k}", "/health").status_code == 405
    metrics = client.get("/metrics", headers=bearer(manager)).text
    assert "INVENTED" not in metrics
    assert 'method="other"' in metrics


def test_invented_sessions_share_the_limit_of_strangers(sqlite_store, tmp_path, seconds):
    limits = Limits(requests_per_minute=600, failures_per_minute=10**6)  # 20 strangers at once
    with inside(sqlite_store, tmp_path, limits, seconds) as (client, manager):
        for path, status in (("/login", 200), ("/api/me", 401)):
            seconds.now += 60
            seen = [
                client.get(path, headers={"Cookie": f"{COOKIE}=w{k}"}).status_code
                for k in range(25)
            ]
            assert seen == [status] * 20 + [429] * 5, path
        # Whoever is known is not kept out by that, once it was seen.
    with inside_again(sqlite_store, tmp_path, limits, seconds) as client:
        head = bearer(manager)
        assert client.get("/api/consortia", headers=head).status_code == 200
        assert [client.get("/login").status_code for _ in range(20)] == [200] * 19 + [429]
        assert client.get("/api/consortia", headers=head).status_code == 200
