"""The coordinator starts runs over a real FLARE server and silos, and goes on with them."""

import itertools
import shutil
import time

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")
pytest.importorskip("sqlalchemy", reason="the extra coordinator is not installed")
pytest.importorskip("fastapi", reason="the extra coordinator is not installed")

import httpx2 as httpx

from fedegoists.coordinator.domain import consortia
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan
from fedegoists.coordinator.runs.run_worker import work_on
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.database_tables import RunRow
from fedegoists.federation.flare.job_operator import Operator
from tests.coordinator.served import bearer, invite_and_join, manager_token, running
from tests.flare.conftest import NAMES
from tests.flare.test_deployed import assert_same_table
from tests.flare.test_faults import kill

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silo_secrets")]

# In a simulation linear models would search their weight decay, at silos they do not.
PLAN = {"methods": ["local", "fedegoists"], "seeds": 1, "steps": 200, "weight_decay": 0.1}


def until(client, address, head, wanted, seconds=300.0):
    """Look at a run until it is as wanted; return all the states it was seen in."""
    seen, end = [], time.monotonic() + seconds
    while True:
        run = client.get(address, headers=head).json()
        seen.append(run["state"])
        if wanted(run):
            return run, set(seen)
        assert run["state"] not in ("failed", "cancelled"), str(run)
        assert time.monotonic() < end, str(run)
        time.sleep(0.1)


def simulated(data, consortium_id):
    """Train by the same decision on this machine."""
    store = CoordinatorStore(f"sqlite:///{data / 'coordinator.db'}")
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        plan = RunPlan(**PLAN, source="banks")
        run = run_records.enqueue(
            session, "m", consortium, RunOrder(kind="training", engine="simulation", plan=plan)
        )
    work_on(store, run.id, data)
    with store.read() as session:
        assert session.get(RunRow, run.id).state == "finished"
    store.close()


def test_a_run_over_silos_survives_its_server_and_the_coordinator(deployment, tmp_path):
    data, log = tmp_path / "data", tmp_path / "log"
    shutil.copytree(deployment.place / "data", data / "silos" / "banks")
    kit = ("--kit", str(deployment.kit), "--requests-per-minute", "100000")
    with (
        running(data, *kit, log=log) as first,
        httpx.Client(base_url=first.url, timeout=60) as client,
    ):
        manager = manager_token(first)
        head = bearer(manager)
        assert client.get("/api/engines", headers=head).json() == ["simulation", "flare"]
        consortium = client.post("/api/consortia", json={"name": "B"}, headers=head).json()["id"]
        api = f"/api/consortia/{consortium}"
        tokens = invite_and_join(client, manager, consortium, NAMES)
        rivals = {"competitors": ["South"]}
        client.put("/api/me/reports", json=rivals, headers=bearer(tokens["East"]))
        client.post(f"{api}/reports/close", headers=head)
        edges = [[a, b, 1.0] for a, b in itertools.permutations(NAMES, 2)]
        client.put(f"{api}/benefit", json={"edges": edges}, headers=head)
        formed = client.post(f"{api}/formations", json={}, headers=head)
        assert formed.status_code == 201, formed.text
        for body, words in [
            ({"engine": "flare", "plan": {**PLAN, "source": "banks"}}, "leave out 'source'"),
            ({"engine": "simulation", "plan": PLAN}, "which data"),
            ({"engine": "carrier pigeon", "plan": PLAN}, "simulation, flare"),
        ]:
            refused = client.post(f"{api}/runs", json=body, headers=head)
            assert refused.status_code in (409, 422)
            assert words in refused.json()["detail"]
        wanted = {"engine": "flare", "plan": PLAN}
        assert client.post(f"{api}/runs", json=wanted, headers=head).status_code == 201
        run, seen = until(client, f"{api}/runs/1", head, lambda run: run["done"] >= 2)
        assert "waiting" in seen  # until the silos had answered
        assert run["state"] == "running"
        kill(deployment.processes[""])  # the FLARE server; its kit starts it again
        run, _ = until(client, f"{api}/runs/1", head, lambda run: run["state"] == "waiting")
        assert "going on from the last checkpoint" in run["remark"]
        first.kill()

    with (
        running(data, *kit, log=log) as second,
        httpx.Client(base_url=second.url, timeout=60) as client,
    ):
        until(client, f"{api}/runs/1", head, lambda run: run["state"] == "finished")
        for name, token in tokens.items():
            own = client.get("/api/me/runs/1/report", headers=bearer(token))
            assert f"This page is for <bdi>{name}" in own.text.replace("\n", "")
            model = client.get("/api/me/runs/1/model", headers=bearer(token))
            assert model.content[8:9] == b"{"
        # Whoever has no kit cannot be reached.
        invite_and_join(client, manager, consortium, ["West"])
        refused = client.post(f"{api}/runs", json={**wanted, "kind": "benefit"}, headers=head)
        assert refused.status_code == 409
        assert "no kit of 'West'" in refused.json()["detail"]
    runs = data / "runs" / f"consortium-{consortium}"
    simulated(data, consortium)
    for name in ("metrics.csv", "gains.csv"):
        assert_same_table(runs / "run-1" / name, runs / "run-2" / name)
    operator = Operator(deployment.kit)
    try:  # FLARE takes some seconds to end a job whose courier is gone
        deployment.wait_until(lambda: "running" not in operator.status().jobs.values())
    finally:
        operator.close()
