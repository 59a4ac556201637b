"""Whatever is sent to any operation: no crash, and nothing of another consortium or member."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance

from fedegoists.coordinator.desk import deciding
from fedegoists.coordinator.desk.consortia import close_reports, consortium_with
from fedegoists.coordinator.store import Store
from tests.coordinator.consortia import found, report
from tests.coordinator.served import bearer, inside

OWN = ["North", "South", "East", "West"]
FOREIGN = ["Xylophonists", "Yodellers", "Zitherists"]


class Served:
    """One service with two consortia; made when first used, so that importing stays cheap."""

    def __init__(self, folder):
        self.store = Store(f"sqlite:///{folder / 'coordinator.db'}")
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
                close_reports(self.store, session, "manager m", consortium)
            deciding.Decider(self.store).form("manager m", consortium_id, deciding.Wish())


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("fuzzed"))
    yield made
    made.context.__exit__(None, None, None)
    made.store.close()


@pytest.fixture(scope="module")
def schema(served):
    async def without_runs(scope, receive, send):
        """The application, but starting and stopping it does nothing: every call would."""
        while scope["type"] == "lifespan":
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
        await served.client.app(scope, receive, send)

    return schemathesis.openapi.from_asgi("/openapi.json", without_runs)


bounded = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def for_every_operation(schema, check):
    """Call a check with requests of all kinds to all operations."""
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        given(case=operation.as_strategy())(bounded(lambda case: check(case)))()


def test_a_member_gets_no_crash_and_nothing_of_others(schema, served):
    def check(case):
        response = case.call(headers=bearer(served.tokens["North"]))
        assert response.status_code < 500, response.text
        for name in (*FOREIGN, "Strangers"):
            assert name not in response.text
        # These list the names of all members, and nothing more of those in other coalitions.
        if case.path not in ("/api/me", "/api/me/certificate"):
            sent = str(case.body) + str(case.path_parameters) + str(case.query)
            assert "West" not in response.text or "West" in sent
        if not case.path.startswith(("/api/me", "/api/invitations", "/health")):
            assert response.status_code in (403, 405, 422), case.path

    for_every_operation(schema, check)


def test_a_manager_gets_no_crash(schema, served):
    def check(case):
        response = case.call(headers=bearer(served.manager))
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=[response_schema_conformance])

    for_every_operation(schema, check)


def test_nobody_unknown_gets_anything(schema, served):
    def check(case):
        response = case.call()
        assert response.status_code < 500, response.text
        if case.path != "/health":
            assert response.status_code in (401, 403, 405, 422), case.path

    for_every_operation(schema, check)
