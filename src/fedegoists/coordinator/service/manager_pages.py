"""The manager's pages: all consortia, one consortium, and the audit log.

A form acts by the function of the API's route for the same action, and with the same body.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from sqlalchemy import func, select

from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.domain.coalition_decisions import (
    FormationOrder,
    formation_of,
    graph_of,
    is_current,
)
from fedegoists.coordinator.runs.run_orders import RunOrder
from fedegoists.coordinator.runs.run_records import runs_of
from fedegoists.coordinator.service import manager_api, runs_api
from fedegoists.coordinator.service.api_schemas import (
    ConsortiumBody,
    ConsortiumView,
    DeadlineBody,
    FormationView,
    InvitationView,
    MemberBody,
    Number,
    RunView,
)
from fedegoists.coordinator.service.rendering import page, see_other
from fedegoists.coordinator.service.request_identity import Caller, ManagerForm, ManagerPage
from fedegoists.coordinator.store.database_tables import AuditEntry, BenefitRow, FormationRow
from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import BenefitGraph

router = APIRouter(include_in_schema=False)


@router.get("/consortia")
def consortia_page(request: Request, caller: ManagerPage) -> Response:
    """Show all consortia."""
    found = manager_api.list_consortia(caller)
    return page(request, "consortia.html.j2", caller, consortia=found)


@router.post("/consortia")
def found_consortium(form: ManagerForm) -> Response:
    """Found a consortium."""
    made = manager_api.create_consortium(form.body(ConsortiumBody, "name"), form)
    return see_other(f"/consortia/{made.id}")


@router.get("/consortia/{consortium_id}")
def consortium_page(request: Request, consortium_id: Number, caller: ManagerPage) -> Response:
    """Show one consortium with its graphs, decisions and runs."""
    return _consortium_page(request, consortium_id, caller)


def _consortium_page(
    request: Request, consortium_id: int, caller: Caller, invited: InvitationView | None = None
) -> Response:
    with caller.service.reading(consortium_id) as (session, found):
        formation = session.latest(FormationRow, found)
        estimate = session.latest(BenefitRow, found)
        return page(
            request,
            "consortium.html.j2",
            caller,
            invited=invited,
            consortium=ConsortiumView.of(session, found),
            formation=FormationView.of(session, found, formation) if formation else None,
            estimate=estimate,
            edges=sum(1 for _ in graph_of(estimate).edges()) if estimate else 0,
            runs=[RunView.model_validate(run) for run in runs_of(session, found)],
            sources=_sources(caller.service.data / "silos"),
            engines=caller.service.reach.engines,
        )


def _sources(silos: Path) -> list[str]:
    """Return the folders with silos' data."""
    found = silos.iterdir() if silos.is_dir() else ()
    return sorted(folder.name for folder in found if folder.is_dir())


@router.get("/consortia/{consortium_id}/picture.json")
def picture(consortium_id: Number, caller: ManagerPage) -> Response:
    """Return the data of the picture: the latest decision, or the graphs before there is one."""
    with caller.service.reading(consortium_id) as (session, found):
        record = session.latest(FormationRow, found)
        if record is not None:
            formation = formation_of(record)
            current = is_current(session, found, record.number, formation)
    if record is None:
        graphs = manager_api.graphs(consortium_id, caller)
        alone = [[name] for name in graphs.participants]
        names, links = graphs.participants, (graphs.benefit, graphs.competition)
        return _picture(names, *links, number=None, current=True, coalitions=alone)
    return _picture(
        formation.participants,
        formation.benefit.edges(),
        formation.competition.pairs,
        number=record.number,
        current=current,
        coalitions=formation.coalitions,
    )


def _picture(
    names: Iterable[str],
    benefit: Iterable[tuple[str, str, float]],
    competition: Iterable[tuple[str, str]],
    **more: object,
) -> Response:
    """Return links with positions for names, which is shorter for thousands of them."""
    place = {name: k for k, name in enumerate(names)}
    weighted = [[place[a], place[b], round(weight, 6)] for a, b, weight in benefit]
    pairs = [[place[a], place[b]] for a, b in competition]
    links = {"participants": list(place), "benefit": weighted, "competition": pairs}
    return JSONResponse({**links, **more})


@router.post("/consortia/{consortium_id}/invite")
def invite(request: Request, consortium_id: Number, form: ManagerForm) -> Response:
    """Invite a member, or invite it again; the invitation is shown once.

    The old token of a member ends only with the field ``again``: reloading the answer sends the
    form a second time.
    """
    body = form.body(MemberBody, "name")
    if form["again"]:
        invited = manager_api.invite_member_again(consortium_id, body.name, form)
    else:
        invited = manager_api.invite_member(consortium_id, body, form)
    return _consortium_page(request, consortium_id, form, invited)


@router.post("/consortia/{consortium_id}/expel")
def expel(consortium_id: Number, form: ManagerForm) -> Response:
    """Expel a member."""
    manager_api.expel_member(consortium_id, form["name"], form)
    return see_other(f"/consortia/{consortium_id}#members")


@router.post("/consortia/{consortium_id}/reports")
def change_reports(consortium_id: Number, form: ManagerForm) -> Response:
    """Close or reopen reports, or set their deadline."""
    match form["action"]:
        case "close":
            manager_api.close_reports(consortium_id, form)
        case "reopen":
            manager_api.reopen_reports(consortium_id, form)
        case "deadline":
            body = form.body(DeadlineBody, deadline=form["deadline"] or None)
            manager_api.set_deadline(consortium_id, body, form)
        case _:
            raise NotFoundError("the form is out of date; load the page again")
    return see_other(f"/consortia/{consortium_id}")


@router.post("/consortia/{consortium_id}/benefit")
def upload_benefit(consortium_id: Number, file: UploadFile, form: ManagerForm) -> Response:
    """Record a benefit graph from a CSV with source,target,weight."""

    def read(names: list[str]) -> BenefitGraph:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "benefit.csv"
            path.write_bytes(file.file.read())
            try:
                return BenefitGraph.from_csv(path, names)
            except FedEgoistsError as error:
                raise GraphError(str(error).replace(str(path), "the file")) from None

    manager_api.upload_benefit(consortium_id, read, form)
    return see_other(f"/consortia/{consortium_id}#coalitions")


@router.post("/consortia/{consortium_id}/form")
def form_coalitions(consortium_id: Number, form: ManagerForm) -> Response:
    """Decide who trains with whom."""
    # Other methods than the best one have no other objective.
    objective = form["objective"] if form["method"] in ("", "best") else "welfare"
    order = form.body(FormationOrder, "method", "time_limit", "fewest_members", objective=objective)
    manager_api.form_coalitions(consortium_id, order, form)
    return see_other(f"/consortia/{consortium_id}#coalitions")


@router.post("/consortia/{consortium_id}/runs")
def start_run(consortium_id: Number, form: ManagerForm) -> Response:
    """Start a run."""
    steps = "benefit_steps" if form["kind"] == "benefit" else "steps"
    plan = {
        **{name: form[name] for name in ("source", "seeds", "threshold", "patience")},
        "methods": [part.strip() for part in form["methods"].split(",") if part.strip()],
        steps: form["steps"],
    }
    given = {name: value for name, value in plan.items() if value}
    order = form.body(RunOrder, "kind", "engine", plan=given)
    runs_api.start_run(consortium_id, order, form)
    return see_other(f"/consortia/{consortium_id}#runs")


@router.post("/consortia/{consortium_id}/runs/{number}/cancel")
def cancel_run(consortium_id: Number, number: Number, form: ManagerForm) -> Response:
    """Cancel a run."""
    runs_api.cancel_run(consortium_id, number, form)
    return see_other(f"/consortia/{consortium_id}#runs")


@router.get("/audit-log")
def audit_log_page(
    request: Request,
    caller: ManagerPage,
    before: Annotated[int, Query(ge=1, le=manager_api.MOST)] = manager_api.MOST,
    check: bool = False,
    head: Annotated[str, Query(pattern=r"^([0-9a-f]{64})?$")] = "",
) -> Response:
    """Show the latest entries of the audit log and, on demand, whether anything was altered."""
    with caller.service.store.read() as session:
        found = session.scalars(
            select(AuditEntry)
            .where(AuditEntry.id < before)
            .order_by(AuditEntry.id.desc())
            .limit(manager_api.ENTRIES_PER_PAGE)
        ).all()
        count = session.scalar(select(func.max(AuditEntry.id))) or 0
    verdict = manager_api.check_audit_log(caller, head or None) if check else None
    shown = {"entries": found, "count": count, "head": head, "verdict": verdict}
    return page(request, "audit_log.html.j2", caller, 200, **shown)
