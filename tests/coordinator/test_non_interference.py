"""What others report must not show: neither in any answer to a member, nor by fuzzing.

Two worlds differ only in what others reported, in ways that leave a member's coalition,
contributors and gains as they are. Then everything the member can fetch is the same, but for the
hashes that commit to the whole graphs, which are salted.
"""

import datetime
import itertools
import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions import FORMATION_METHODS, OBJECTIVES
from fedegoists.coordinator.domain import accounts, coalition_decisions, competitor_reports
from fedegoists.coordinator.domain.coalition_decisions import FormationOrder
from fedegoists.coordinator.domain.consortia import close_reports, consortium_with, member_named
from fedegoists.coordinator.domain.member_view import member_decision
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan
from fedegoists.coordinator.service import login_pages, manager_pages, member_pages
from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.service.web_app import create_app
from fedegoists.coordinator.store import CoordinatorStore
from tests.coordinator.conftest import HandClock
from tests.coordinator.consortia import checked, forms, found, report
from tests.coordinator.served import MANY, bearer

STABLE = FormationOrder(method="stable")
ORDERS = [
    STABLE,
    *(FormationOrder(objective=objective) for objective in OBJECTIVES),
    *(
        FormationOrder(method=method)
        for method in FORMATION_METHODS
        if method not in ("best", "stable")
    ),
]
EXAMPLES = int(os.environ.get("FEDEGOISTS_EXAMPLES", "40"))
"""How many pairs of worlds; more for a longer search."""

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SECRET = bytes(range(32))


def still_clock():
    return datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def addresses(interface, consortium, names):
    """Every address that can be read, with numbers and names that mean something."""
    shown = [
        route.path
        for router in (login_pages.router, manager_pages.router, member_pages.router)
        for route in router.routes
        if "GET" in route.methods
    ]

    def filled(path):
        path = path.replace("{consortium_id}", str(consortium)).replace("{number}", "1")
        return path.replace("{name}", names[0])

    return [filled(path) for path in interface], [filled(path) for path in shown]


def fetched(client, paths, token, commitment):
    """Everything under these addresses: the interface by token, pages by session."""
    interface, shown = paths
    answers = {}
    for path in interface:
        answer = client.get(path, headers=bearer(token))
        answers[path] = (answer.status_code, hidden(answer, commitment))
    client.post("/login", data={"secret": token})
    for path in (*shown, "/api/me", "/api/audit-log"):
        answer = client.get(path)
        answers["session", path] = (answer.status_code, hidden(answer, commitment))
    client.cookies.clear()
    return answers


def hidden(answer, commitment):
    """An answer without commitments, proofs and what protects forms: hashes of equal length."""
    text = answer.text
    if answer.headers.get("content-disposition", "").endswith('certificate.json"'):
        content = json.loads(text)
        if "proof" in content:  # a member's; the manager's is the whole decision
            content["commitment"] = len(content["commitment"])
            content["proof"] = [len(digest) for digest in content["proof"]]
        text = json.dumps(content)
    text = text.replace(commitment, "COMMITMENT")
    text = re.sub(r'(data-csrf|name="csrf" value)="[0-9a-f]{64}"', r"\1=CSRF", text)
    headers = {k: v for k, v in answer.headers.items() if k != "set-cookie"}
    return headers, text


class OneApplication:
    """One application for all worlds: to make one takes longer than all that is asked of it."""

    def __init__(self, folder):
        self.empty = folder / "empty.db"
        store = CoordinatorStore(f"sqlite:///{self.empty}", clock=still_clock)
        self.app = create_app(Service(store, folder, MANY))
        self.interface = [
            path for path, item in self.app.openapi()["paths"].items() if "get" in item
        ]
        store.close()

    @contextmanager
    def over(self, folder, clock=still_clock):
        """Serve a new, empty store."""
        shutil.copyfile(self.empty, folder / "coordinator.db")
        store = CoordinatorStore(f"sqlite:///{folder / 'coordinator.db'}", clock=clock)
        self.app.state.service = Service(store, folder, MANY)
        client = TestClient(self.app, raise_server_exceptions=False, follow_redirects=False)
        try:
            with start_blocking_portal() as client.portal:
                yield store, client
        finally:
            client.close()
            store.close()


@pytest.fixture(scope="module")
def application():
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield OneApplication(Path(folder))


def world(application, names, weights, reports, member, patch, order=STABLE):
    """A consortium that decided by these reports, and all that one member can fetch."""
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        application.over(Path(folder)) as (store, client),
    ):
        consortium_id, tokens = found(store, names, weights=weights)
        with store.write() as session:
            consortium = consortium_with(session, consortium_id)
            for reporter, competitor in reports:
                who = member_named(session, consortium, reporter)
                competitor_reports.report(session, who, competitor)
            # Others have finished reporting, or not; each world has its own.
            for name in {reporter for reporter, _ in reports if reporter != member}:
                competitor_reports.finish_reporting(
                    session, member_named(session, consortium, name)
                )
            close_reports(session, "manager m", consortium)
        patch.setattr(coalition_decisions, "new_secret", lambda: SECRET)
        decider = coalition_decisions.Decider(store)
        record = decider.form("manager m", consortium_id, order)
        with_runs(store, consortium_id, reports)
        for _ in range(len(reports) % 2):  # a draft that is not published
            decider.form("manager m", consortium_id, FormationOrder(method="stable", draft=True))
        with store.read() as session:
            consortium = consortium_with(session, consortium_id)
            own = member_decision(session, member_named(session, consortium, member))
        paths = addresses(application.interface, consortium_id, names)
        answers = fetched(client, paths, tokens[member], record.commitment)
    return own, answers


def with_runs(store, consortium_id, reports):
    """Runs that finished, failed and go on; what is noted of them is another in every world."""
    ends = [{}, {"error": f"because of {reports}"}, None]
    for end in ends:
        with store.write() as session:
            consortium = consortium_with(session, consortium_id)
            plan = RunPlan(source="banks", seeds=1 + len(reports))
            run = run_records.enqueue(
                session,
                "manager m",
                consortium,
                RunOrder(kind="training", engine="simulation", plan=plan),
            )
        run_records.note_progress(store, run.id, f"{reports}"[:50], len(reports), 10, f"{reports}")
        if end is not None:
            run_records.finish(store, run.id, **end)


@st.composite
def two_worlds(draw):
    n = draw(st.integers(3, 6))
    names = [f"m{k}" for k in range(n)]
    weights = [
        [0 if i == j else draw(st.sampled_from([0, 0, 1, 2, 0.5])) for i in range(n)]
        for j in range(n)
    ]
    member = draw(st.sampled_from(names))
    pairs = list(itertools.permutations(names, 2))
    own = [pair for pair in pairs if pair[0] == member]
    others = [pair for pair in pairs if pair[0] != member]
    mine = draw(st.lists(st.sampled_from(own), unique=True, max_size=2))
    one = draw(st.lists(st.sampled_from(others), unique=True, max_size=n))
    # Mostly a few changes, so that often nothing changes for the member.
    change = draw(st.lists(st.sampled_from(others), unique=True, min_size=1, max_size=3))
    other = [pair for pair in one if pair not in change]
    other += [pair for pair in change if pair not in one]
    return names, weights, member, mine + one, mine + other


def concerns(names, weights, member, reports, order):
    """What the decision says about one member."""
    pairs = {tuple(sorted(pair)) for pair in reports}
    formation = form(
        BenefitGraph(weights, names),
        CompetitionGraph(pairs, names),
        order.method,
        objective=order.objective,
        time_limit=order.time_limit,
    )
    return formation.coalition_of(member)


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to make one smaller takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(two_worlds(), st.sampled_from(ORDERS))
def test_what_others_report_does_not_show(application, worlds, order):
    names, weights, member, one, other = worlds
    before = concerns(names, weights, member, one, order)
    assume(before == concerns(names, weights, member, other, order))
    with pytest.MonkeyPatch.context() as patch:
        seen = [
            world(application, names, weights, reports, member, patch, order)
            for reports in (one, other)
        ]
    (own_one, all_one), (own_other, all_other) = seen
    assert (own_one.coalition, own_one.gain) == (own_other.coalition, own_other.gain)
    assert all_one.keys() == all_other.keys()
    for address, answer in all_one.items():
        assert answer == all_other[address], address
    assert all_one["/api/me/certificate"][0] == 200
    assert all_one["session", "/member"][0] == 200
    refused = [path for path, (status, _) in all_one.items() if status == 403]
    assert "/api/consortia/1/graphs" in refused
    assert "/metrics" in refused


def test_a_difference_that_concerns_the_member_does_show(application, monkeypatch):
    """So that the test above can fail."""
    names, weights = ["a", "b", "c"], [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    seen = [
        world(application, names, weights, reports, "a", monkeypatch)
        for reports in ([], [("b", "a")])
    ]
    assert seen[0][1]["/api/me/decision"] != seen[1][1]["/api/me/decision"]
    assert seen[0][1]["session", "/member"] != seen[1][1]["session", "/member"]
    assert len(json.loads(seen[0][1]["/api/me/runs"][1][1])) == 3


@st.composite
def two_sides(draw):
    """Competing pairs, and who reported each: one side, the other, or both, in either world."""
    names = [f"m{k}" for k in range(draw(st.integers(2, 5)))]
    pairs = draw(
        st.lists(st.sampled_from(list(itertools.combinations(names, 2))), unique=True, min_size=1)
    )

    def sides():
        return [
            report
            for a, b in pairs
            for report in draw(
                st.sampled_from([[(a, b)], [(b, a)], [(a, b), (b, a)], [(b, a), (a, b)]])
            )
        ]

    return names, pairs, sides(), sides(), draw(st.sampled_from(names))


def posing(application, names, reports, member, patch, probed):
    """All that a manager can fetch who invites a member again and takes its place.

    It reports again whom it suspects, withdraws that, and has coalitions formed again.
    """
    clock = HandClock()
    ones = [[float(i != j) for i in range(len(names))] for j in range(len(names))]
    answers = []
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        application.over(Path(folder), clock) as (store, client),
    ):
        with store.write() as session:
            login = accounts.invite_account(session, "coordinator", "manager", "m")
            _, manager = accounts.accept_invitation(session, login)
        consortium_id, _ = found(store, names, weights=ones)
        for reporter, competitor in reports:
            report(store, consortium_id, reporter, competitor)
        with store.write() as session:  # whether or not they have reported anyone
            for name in names:
                own = member_named(session, consortium_with(session, consortium_id), name)
                competitor_reports.finish_reporting(session, own)
        clock.move(hours=1)
        patch.setattr(coalition_decisions, "new_secret", lambda: SECRET)
        record = forms(store, consortium_id, method="stable")
        clock.move(hours=1)
        paths = addresses(application.interface, consortium_id, names)
        again = client.post(
            f"/api/consortia/{consortium_id}/members/{member}/invitation", headers=bearer(manager)
        )
        accepted = client.post(
            "/api/invitations/accept", json={"invitation": again.json()["invitation"]}
        )
        token = accepted.json()["token"]

        def look(commitment):
            clock.move(hours=1)
            answers.append(fetched(client, paths, token, commitment))
            seen = fetched(client, paths, manager, commitment)
            # The log says that a member reported, as it always did; not whom. Metrics have times.
            apart = ("audit-log", "metrics")
            answers.append(
                {at: one for at, one in seen.items() if not any(part in str(at) for part in apart)}
            )

        look(record.commitment)
        client.post(f"/api/consortia/{consortium_id}/reports/reopen", headers=bearer(manager))
        for guess in (probed, []):
            told = client.put("/api/me/reports", json={"competitors": guess}, headers=bearer(token))
            answers.append((told.status_code, told.json()))
            look(record.commitment)
        record = forms(store, consortium_id, method="stable")
        look(record.commitment)
        assert checked(store).ok
    return answers


@pytest.mark.slow
@settings(
    max_examples=max(4, EXAMPLES // 10),  # each fetches everything ten times
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(two_sides())
def test_inviting_a_member_again_does_not_show_whom_it_reported(application, sides):
    """Two worlds with the same competition graph differ only in which side reported a pair."""
    names, pairs, one, other, member = sides
    probed = [b if a == member else a for a, b in pairs if member in (a, b)]
    with pytest.MonkeyPatch.context() as patch:
        first, second = (
            posing(application, names, reports, member, patch, probed) for reports in (one, other)
        )
    assert first == second
    assert first[0]["/api/me/certificate"][0] == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "reports"),
    [
        (FormationOrder(), [("Elm", "Dogwood")]),
        (FormationOrder(objective="fair"), [("Dogwood", "Alder"), ("Elm", "Dogwood")]),
        (STABLE, [("Elm", "Birch"), ("Dogwood", "Elm")]),
    ],
    ids=["best", "fair", "stable"],
)
def test_training_does_not_show_it_either(tmp_path, order, reports):
    """Others fall apart; a member's page and model stay the same, byte for byte."""
    pytest.importorskip("torch", reason="runs need the extra train")
    from fedegoists.coordinator.runs.run_worker import work_on
    from tests.coordinator.banks import BANKS, with_banks

    weights = [[float(i != j and (i < 3) == (j < 3)) for i in range(5)] for j in range(5)]
    plan = RunPlan(source="banks", methods=("local", "fedegoists"), seeds=1, steps=20)
    left = []
    for pairs in ([], reports):
        folder = tmp_path / str(len(pairs))
        with_banks(folder)
        store = CoordinatorStore(f"sqlite:///{folder / 'coordinator.db'}", clock=still_clock)
        consortium_id, _ = found(store, BANKS, weights=weights)
        with store.write() as session:
            consortium = consortium_with(session, consortium_id)
            for reporter, competitor in pairs:
                who = member_named(session, consortium, reporter)
                competitor_reports.report(session, who, competitor)
            close_reports(session, "manager m", consortium)
        coalition_decisions.Decider(store).form("manager m", consortium_id, order)
        with store.write() as session:
            consortium = consortium_with(session, consortium_id)
            run = run_records.enqueue(
                session,
                "manager m",
                consortium,
                RunOrder(kind="training", engine="simulation", plan=plan),
            )
            made, name = run_records.run_folder(folder, run)
        work_on(store, run.id, folder)
        store.close()
        left.append(
            {
                bank: (
                    (made / name / "members" / f"{bank}.html").read_bytes(),
                    (made / name / "models" / f"{bank}.safetensors").read_bytes(),
                )
                for bank in BANKS
            }
        )
    assert [bank for bank in BANKS if left[0][bank] == left[1][bank]] == BANKS[:3]
