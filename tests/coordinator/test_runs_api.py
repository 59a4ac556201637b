"""Runs over the API: deployments, kits, and streams of events."""

import asyncio

import pytest
from fastapi.testclient import TestClient

from fedegoists.coordinator.runs.run_orders import Reach
from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.service.web_app import create_app
from tests.coordinator.consortia import NAMES
from tests.coordinator.served import (
    MANY,
    bearer,
    decided,
    founded,
    inside,
    invite_and_join,
    signed_in,
)


@pytest.mark.usefixtures("any_plan")
def test_no_more_follow_runs_than_may(sqlite_store, tmp_path):
    """They ask at the same moment, so that all would see room before any is counted."""
    limits = MANY.model_copy(update={"streams": 3})
    with inside(sqlite_store, tmp_path, limits) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        api = f"/api/consortia/{consortium}/runs"
        plan = {"plan": {"source": "banks"}}
        assert client.post(api, json=plan, headers=bearer(manager)).status_code == 201
        service = client.app.state.service

        async def follow(statuses, gate):
            async def receive():
                await gate.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    if len(statuses) == 8:
                        gate.set()

            head = [(b"authorization", f"Bearer {manager}".encode())]
            scope = {
                "type": "http", "method": "GET", "path": f"{api}/1/events", "headers": head,
                "query_string": b"", "raw_path": b"", "root_path": "", "scheme": "http",
                "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("testserver", 80),
            }  # fmt: skip
            await client.app(scope, receive, send)

        async def all_at_once():
            statuses, gate = [], asyncio.Event()
            await asyncio.gather(*(follow(statuses, gate) for _ in range(8)))
            return statuses

        statuses = client.portal.call(all_at_once)
        assert sorted(statuses) == [200] * 3 + [503] * 5
        assert service.streams == 0


def test_a_run_over_flare_needs_a_deployment(served):
    client, manager = served
    consortium, _ = founded(client, manager)
    decided(client, manager, consortium)
    assert client.get("/api/engines", headers=bearer(manager)).json() == ["simulation"]
    wanted = {"engine": "flare", "plan": {}}
    api = f"/api/consortia/{consortium}/runs"
    refused = client.post(api, json=wanted, headers=bearer(manager))
    assert refused.status_code == 409
    assert "--kit" in refused.json()["detail"]
    csrf = signed_in(client, manager)
    assert 'name="engine"' not in client.get(f"/consortia/{consortium}").text
    form = {"csrf": csrf, "kind": "training", "engine": "flare"}
    refused = client.post(f"/consortia/{consortium}/runs", data=form)
    assert (refused.status_code, "--kit" in refused.text) == (409, True)


@pytest.mark.usefixtures("any_plan")
def test_training_needs_only_the_kits_of_those_who_were_decided_about(sqlite_store, tmp_path):
    app = create_app(Service(sqlite_store, tmp_path, MANY, Reach(tmp_path, NAMES)))
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        invite_and_join(client, manager, consortium, ["Late"])
    client = TestClient(app)
    api = f"/api/consortia/{consortium}/runs"
    wanted = {"engine": "flare", "plan": {}}
    made = client.post(api, json=wanted, headers=bearer(manager))
    assert made.status_code == 201, made.text
    refused = client.post(api, json={**wanted, "kind": "benefit"}, headers=bearer(manager))
    assert (refused.status_code, "no kit of 'Late'" in refused.text) == (409, True)
