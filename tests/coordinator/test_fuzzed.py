"""Whatever is sent to any operation: no crash, and nothing of another consortium or member."""

import json
import os
from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance

from fedegoists.coordinator.domain import accounts, coalition_decisions
from fedegoists.coordinator.domain.coalition_decisions import FormationOrder
from fedegoists.coordinator.domain.consortia import close_reports, consortium_with, reopen_reports
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import FILES, RunOrder, RunPlan
from fedegoists.coordinator.service.request_identity import COOKIE, TLS_EXTENSION
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import check_log
from tests.coordinator.consortia import found, report
from tests.coordinator.served import bearer, inside

OWN = ["North", "South", "East", "West"]
FOREIGN = ["Xylophonists", "Yodellers", "Zitherists"]


class Served:
    """One service with two consortia; made when first used, so that importing stays cheap."""

    def __init__(self, folder):
        self.store = CoordinatorStore(f"sqlite:///{folder / 'coordinator.db'}")
        self.context = inside(self.store, folder)
        self.client, self.manager = self.context.__enter__()
        cycle = [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
        own, self.tokens = found(self.store, OWN, "Own", cycle)
        foreign, _ = found(self.store, FOREIGN, "Strangers", [[0, 1, 1], [1, 0, 1], [1, 1, 0]])
        report(self.store, own, "West", "South")
        report(self.store, foreign, "Zitherists", "Yodellers")
        for consortium_id in (own, foreign):
            with self.store.write() as session:
                consortium = consortium_with(session, consortium_id)
                close_reports(session, "manager m", consortium)
            coalition_decisions.Decider(self.store).form(
                "manager m", consortium_id, FormationOrder()
            )
        self.trained(folder, own)

    def trained(self, folder, consortium_id):
        """Leave what a run leaves, and let members report again."""
        with self.store.write() as session:
            consortium = consortium_with(session, consortium_id)
            plan = RunPlan(source="banks")
            run = run_records.enqueue(
                session,
                "manager m",
                consortium,
                RunOrder(kind="training", engine="simulation", plan=plan),
            )
        run_records.finish(self.store, run.id)
        with self.store.write() as session:
            consortium = consortium_with(session, consortium_id)
            reopen_reports(session, "manager m", consortium)
        runs, name = run_records.run_folder(folder, run)
        for part, suffix in (("members", ".html"), ("models", ".safetensors")):
            (runs / name / part).mkdir(parents=True)
            for one in OWN:
                (runs / name / part / f"{one}{suffix}").write_text(f"for {one} alone")
        (runs / name / "report.html").write_text("for the manager")
        (runs / name / FILES).write_text(json.dumps({one: one for one in OWN}))

    def session(self, token):
        """A browser's session, with what shows that a request came from our own page."""
        with self.store.write() as session:
            principal = accounts.authenticate(session, token, "token")
            opened = accounts.open_session(session, principal)
        return {"Cookie": f"{COOKIE}={opened}", "X-CSRF-Token": accounts.csrf_token(opened)}

    def certificate(self, token):
        """The SHA-256 of a client certificate that is registered for a member."""
        with self.store.write() as session:
            principal = accounts.authenticate(session, token, "token")
            accounts.add_certificate(session, principal, "ab" * 32)
        return "ab" * 32

    def as_it_was(self, token):
        """Whether the member is still there, and the log whole, after all that was sent."""
        with self.store.read() as session:
            known = accounts.authenticate(session, token, "token")
            return known is not None and check_log(session).ok


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("fuzzed"))
    yield made
    made.context.__exit__(None, None, None)
    made.store.close()


@pytest.fixture(scope="module")
def schema(served):
    async def without_runs(scope, receive, send):
        """The application, but starting and stopping it does nothing: every call would.

        As the server does, it tells which client certificate the connection has shown.
        """
        while scope["type"] == "lifespan":
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
        headers = dict(scope["headers"])
        shown = headers.pop(b"x-test-certificate", None)
        if shown is not None:
            scope["extensions"] = {TLS_EXTENSION: shown.decode()}
        await served.client.app({**scope, "headers": list(headers.items())}, receive, send)

    return schemathesis.openapi.from_asgi("/openapi.json", without_runs)


EXAMPLES = int(os.environ.get("FEDEGOISTS_EXAMPLES", "12"))
"""Requests to each operation, each sent in every role; more for a longer search."""

bounded = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FEDEGOISTS_EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def as_member(case, response, who):
    """A member gets nothing of another consortium, nor of those in other coalitions."""
    for name in (*FOREIGN, "Strangers"):
        assert name not in response.text, (who, case.path)
    # These list the names of all members, and nothing more of those in other coalitions.
    if case.path not in ("/api/me", "/api/me/certificate"):
        sent = str(case.body) + str(case.path_parameters) + str(case.query)
        assert "West" not in response.text or "West" in sent, (who, case.path)
    if not case.path.startswith(("/api/me", "/api/invitations", "/health")):
        assert response.status_code in (403, 405, 422), (who, case.path)


@pytest.mark.slow
def test_whatever_is_sent_in_whatever_role(schema, served):
    """No role gets an answer of 500 or more, nor anything that is not for it."""
    member = served.tokens["North"]
    roles = {
        "anonymous": {},
        "wrong token": bearer("fe-token-wrong"),
        "member": bearer(member),
        "member's session": served.session(member),
        "member's certificate": {"X-Test-Certificate": served.certificate(member)},
        "manager": bearer(served.manager),
    }
    answered = Counter()

    def check(case):
        if case.path.startswith("/api/me/runs/"):
            case.path_parameters["number"] = 1  # the one there is
        # Who asks is what the roles say, not what is generated.
        for name in ("Authorization", "Cookie", "X-CSRF-Token"):
            case.headers.pop(name, None)
        case.cookies.clear()
        for who, headers in roles.items():
            response = case.call(headers=headers)
            assert response.status_code < 500, (who, case.path, response.text)
            answered[who] += response.status_code < 300
            answered[who, case.method, case.path] += response.status_code < 300
            if who.startswith("member"):
                as_member(case, response, who)
            elif who == "manager":
                case.validate_response(response, checks=[response_schema_conformance])
            elif case.path != "/health":
                assert response.status_code in (401, 403, 405, 422), (who, case.path)
        served.client.cookies.clear()

    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        given(case=operation.as_strategy())(bounded(lambda case: check(case)))()
    # Each was let in, so that refusing everybody would not pass.
    assert all(answered[who] > 20 for who in roles if who.startswith("m")), answered
    for method, path in (
        ("GET", "/api/me/runs/{number}/report"),
        ("GET", "/api/me/runs/{number}/model"),
        ("PUT", "/api/me/reports"),
    ):
        assert answered["member", method, path] > 0, path
    assert served.as_it_was(member)
