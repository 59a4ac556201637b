"""The client against a coordinator that runs as a process of its own."""

import json
import re

import pytest

pytest.importorskip("fastapi", reason="the extra coordinator is not installed")
pytest.importorskip("torch", reason="the extra train is not installed")

from fedegoists.client import ClientError, ManagerClient, MemberClient, accept_invitation
from tests.coordinator.banks import with_banks
from tests.coordinator.served import running
from tests.docs.pages import HowTo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    with_banks(folder / "data")
    limit = ("--requests-per-minute", "100000")
    with running(folder / "data", *limit, log=folder / "log") as process:
        yield process


def test_the_whole_way_as_the_page_has_it(service, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = HowTo("how-to-run-the-coordinator").block_with("ManagerClient(url")
    for given, quick in (
        ("http://127.0.0.1:8000", service.url),
        ("steps=200", "steps=20, seeds=1, methods=['local', 'fedegoists']"),
    ):
        assert code.count(given) == 1
        code = code.replace(given, quick)
    names = {"login": f"{service.url}/login#{service.invitation}"}
    exec(compile(code, "how-to-run-the-coordinator.md", "exec"), names)
    banks, members, draft = names["banks"], names["members"], names["draft"]
    assert draft["coalitions"] == [["Alder", "Cedar"], ["Birch"]]
    assert members["Alder"].decision()["coalition"] == ["Alder", "Cedar"]
    assert "compete" in banks.explain(draft["number"], "Alder", "Birch")
    assert (tmp_path / "alder.safetensors").stat().st_size > 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "finished" in capsys.readouterr().out
    further(names["manager"], banks, members, tmp_path)


def further(manager, banks, members, folder):
    """What the page does not show."""
    assert [one.number for one in manager.consortia()] == [banks.number]
    state = manager.consortium(banks.number).state()
    assert {one["name"]: one["finished_reporting"] for one in state["members"]} == dict.fromkeys(
        members, True
    )
    assert [one["number"] for one in banks.formations()] == [1]
    assert banks.what_if(1, remove=[("Alder", "Birch")])["welfare_change"] == 0
    banks.save_certificate(1, folder / "whole.json")
    members["Alder"].save_certificate(folder / "own.json")
    assert [(folder / f"{one}.json").stat().st_mode & 0o777 for one in ("own", "whole")] == [
        0o600
    ] * 2
    own, whole = (json.loads((folder / f"{one}.json").read_text()) for one in ("own", "whole"))
    assert own != whole
    assert [run["state"] for run in members["Birch"].runs()] == ["finished"]
    members["Birch"].save_report(1, folder / "birch.html")
    assert "Birch" in (folder / "birch.html").read_text(encoding="utf-8")
    assert [run["kind"] for run in banks.runs()] == ["training"]
    with pytest.raises(ClientError, match="no longer be changed") as error:
        members["Cedar"].report([])
    assert error.value.status == 409
    run = banks.train(source="banks", steps=10**6)
    run.cancel()
    with pytest.raises(ClientError, match="run 2 was cancelled"):
        run.wait()
    banks.reopen_reports()
    banks.set_deadline("2099-01-01T00:00")
    assert members["Cedar"].me()["deadline"].startswith("2099")
    assert members["Cedar"].report(["Birch"], finished=False)["competitors"] == ["Birch"]
    link = banks.invite_again("Cedar")
    with pytest.raises(ClientError, match="valid token"):
        members["Cedar"].reports()
    again = MemberClient(manager.url, accept_invitation(manager.url, link))
    assert again.reports()["sealed"]
    banks.expel("Birch")
    assert "Birch" not in again.me()["members"]


@pytest.mark.parametrize(
    ("act", "status", "reason"),
    [
        (lambda m: m.found(""), 422, "name: "),
        (lambda m: m.consortium(7).state(), 404, "no such consortium"),
        (lambda m: m.consortium(7).expel("a/b"), 404, "no such consortium"),
        (lambda m: ManagerClient(m.url, "fe-token-wrong").consortia(), 401, "valid token"),
        (lambda m: accept_invitation(m.url, "fe-invitation-wrong"), 401, "ask the manager"),
    ],
)
def test_refusals_have_their_reason(service, act, status, reason):
    with pytest.raises(ClientError, match=re.escape(reason)) as error:
        act(ManagerClient(service.url, manager_token(service)))
    assert error.value.status == status


def manager_token(service):
    """Another manager of the same service."""
    from fedegoists.coordinator.domain.accounts import invite_account
    from fedegoists.coordinator.store import CoordinatorStore

    store = CoordinatorStore(f"sqlite:///{service.log.parent / 'data' / 'coordinator.db'}")
    with store.write() as session:
        invitation = invite_account(session, "test", "manager", "another")
    store.close()
    return accept_invitation(service.url, invitation)
