"""The manager's pages: all consortia, one consortium, and the audit log.

A form acts by the function of the API's route for the same action, and with the same body.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from sqlalchemy import func, select

from fedegoists.coalitions.drawing.scene import MOST_DRAWN, formation_scene, scene
from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.domain.coalition_decisions import (
    FormationOrder,
    formation_of,
    graph_of,
    is_current,
    published_formation,
)
from fedegoists.coordinator.runs.run_orders import RunOrder
from fedegoists.coordinator.runs.run_records import runs_of
from fedegoists.coordinator.service import manager_api, runs_api
from fedegoists.coordinator.service.api_schemas import (
    ConsortiumBody,
    ConsortiumView,
    DeadlineBody,
    FormationView,
    MemberBody,
    MembersBody,
    Name,
    Number,
    PublicationBody,
    RunView,
)
from fedegoists.coordinator.service.process_steps import process_steps
from fedegoists.coordinator.service.rendering import page, see_other
from fedegoists.coordinator.service.request_identity import (
    Caller,
    ManagerForm,
    ManagerPage,
    SubmittedForm,
)
from fedegoists.coordinator.store.database_tables import AuditEntry, BenefitRow, FormationRow
from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import BenefitGraph

router = APIRouter(include_in_schema=False)


@router.get("/consortia")
def consortia_page(request: Request, caller: ManagerPage) -> Response:
    """Show all consortia."""
    return _consortia_page(request, caller)


def _consortia_page(
    request: Request, caller: Caller, status: int = 200, problem: str = "", name: str = ""
) -> Response:
    found = manager_api.list_consortia(caller)
    shown = {"consortia": found, "problem": problem, "name": name}
    return page(request, "consortia.html.j2", caller, status, **shown)


@router.post("/consortia")
def found_consortium(form: ManagerForm) -> Response:
    """Found a consortium."""
    made = manager_api.create_consortium(form.body(ConsortiumBody, "name"), form)
    return see_other(f"/consortia/{made.id}")


@router.get("/consortia/{consortium_id}")
def consortium_page(request: Request, consortium_id: Number, caller: ManagerPage) -> Response:
    """Show one consortium with its graphs, decisions and runs."""
    return _consortium_page(request, consortium_id, caller)


@dataclass(frozen=True)
class FormProblem:
    """An error in a form of a page, with what was entered.

    Attributes
    ----------
    form : str
        The last part of the form's address; empty if there is no problem.
    """

    form: str = ""
    detail: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    def given(self, form: str, name: str, otherwise: object = "") -> object:
        """Return what was entered in a field of a form that has to be corrected."""
        return self.fields.get(name, otherwise) if form == self.form else otherwise


def _consortium_page(
    request: Request,
    consortium_id: int,
    caller: Caller,
    status: int = 200,
    problem: FormProblem | None = None,
) -> Response:
    with caller.service.reading(consortium_id) as (session, found):
        record = session.latest(FormationRow, found)
        estimate = session.latest(BenefitRow, found)
        consortium = ConsortiumView.of(session, found)
        formation = FormationView.of(session, found, record) if record else None
        runs = [RunView.model_validate(run) for run in runs_of(session, found)]
        graph = graph_of(estimate) if estimate else None
        decided = published_formation(session, found)
        sources = _sources(caller.service.data / "silos")
        steps = process_steps(consortium, graph.participants if graph else None, formation, runs)
        return page(
            request,
            "consortium.html.j2",
            caller,
            status,
            problem=problem or FormProblem(),
            steps={step.key: step for step in steps},
            invitations=caller.service.fresh.of((caller.csrf or "", consortium_id)),
            consortium=consortium,
            formation=formation,
            published=decided is not None,
            estimate=estimate,
            edges=sum(1 for _ in graph.edges()) if graph else 0,
            runs=runs,
            sources=sources,
            engines=caller.service.reach.engines,
        )


FORMS = {
    "invite": "invite",
    "sent": "invite",
    "expel": "join",
    "reports": "reports",
    "benefit": "evidence",
    "form": "draft",
    "publish": "publish",
    "runs": "train",
}
"""The forms of the page about a consortium, by the last part of their address, and their steps."""


def page_again(request: Request, form: SubmittedForm, status: int, detail: str) -> Response | None:
    """Return the page with an error beside the form it came from; None if there is no such form."""
    parts = request.url.path.strip("/").split("/")
    if parts == ["consortia"]:
        return _consortia_page(request, form, status, detail, form["name"])
    if parts[0] != "consortia" or len(parts) < 3 or parts[2] not in FORMS:
        return None
    kind = parts[2]
    if kind == "runs" and form["kind"] == "benefit":
        kind = "learn"
    try:
        problem = FormProblem(kind, detail, form.fields)
        return _consortium_page(request, int(parts[1]), form, status, problem)
    except (FedEgoistsError, ValueError):  # there is no such consortium
        return None


@router.get("/consortia/{consortium_id}/explain")
def explain_page(
    request: Request, consortium_id: Number, member: Annotated[Name, Query()], caller: ManagerPage
) -> Response:
    """Explain why a member is with or apart from each other one. It names competitors."""
    with caller.service.reading(consortium_id) as (session, found):
        record = session.latest(FormationRow, found)
        if record is None:
            raise NotFoundError("nothing has been decided yet, so there is nothing to explain")
        shown = ConsortiumView.of(session, found)
        coalition = formation_of(record).coalition_of(member)
    answers = manager_api.explanations(consortium_id, record.number, member, caller)
    return page(
        request,
        "explain.html.j2",
        caller,
        consortium=shown,
        member=member,
        together=[name for name in coalition if name != member],
        explanations=answers,
    )


def _sources(silos: Path) -> list[str]:
    """Return the folders with silos' data."""
    found = silos.iterdir() if silos.is_dir() else ()
    return sorted(folder.name for folder in found if folder.is_dir())


@router.get("/consortia/{consortium_id}/picture.json")
def picture(consortium_id: Number, caller: ManagerPage, portrait: bool = False) -> Response:
    """Return the data of the picture: the latest decision, or the graphs before there is one."""
    with caller.service.reading(consortium_id) as (session, found):
        record = session.latest(FormationRow, found)
        if record is not None:
            formation = formation_of(record)
            current = is_current(session, found, record.number, formation)
    if record is None:
        graphs = manager_api.graphs(consortium_id, caller)
        alone = [[name] for name in graphs.participants]
        names, few = graphs.participants, len(graphs.participants) <= MOST_DRAWN
        links = (graphs.benefit, graphs.competition) if few else ((), ())
        return JSONResponse(
            {
                "participants": names,
                "number": None,
                "current": True,
                "gains": {},
                "scene": asdict(scene(names, alone, *links, portrait=portrait)),
            }
        )
    return JSONResponse(
        {
            "participants": list(formation.participants),
            "number": record.number,
            "current": current,
            "gains": dict(formation.utilities),
            "scene": asdict(formation_scene(formation, portrait=portrait)),
        }
    )


@router.post("/consortia/{consortium_id}/invite")
def invite(consortium_id: Number, form: ManagerForm) -> Response:
    """Invite members, one a line, or one of them again; the page then shows the invitations."""
    if form["again"]:
        name = form.body(MemberBody, "name").name
        made = [manager_api.invite_member_again(consortium_id, name, form)]
    else:
        names = [line.strip() for line in form["names"].splitlines() if line.strip()]
        body = form.body(MembersBody, names=names)
        made = manager_api.invite_members(consortium_id, body, form)
    form.service.fresh.add((form.csrf or "", consortium_id), made)
    return see_other(f"/consortia/{consortium_id}#invite")


@router.post("/consortia/{consortium_id}/sent")
def invitations_sent(consortium_id: Number, form: ManagerForm) -> Response:
    """Forget the invitations that the page shows."""
    form.service.fresh.clear((form.csrf or "", consortium_id))
    return see_other(f"/consortia/{consortium_id}")


@router.post("/consortia/{consortium_id}/expel")
def expel(consortium_id: Number, form: ManagerForm) -> Response:
    """Expel a member."""
    manager_api.expel_member(consortium_id, form["name"], form)
    return see_other(f"/consortia/{consortium_id}#join")


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
    return see_other(f"/consortia/{consortium_id}#reports")


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
    return see_other(f"/consortia/{consortium_id}#draft")


@router.post("/consortia/{consortium_id}/form")
def form_coalitions(consortium_id: Number, form: ManagerForm) -> Response:
    """Decide who trains with whom."""
    # Other methods than the best one have no other objective.
    objective = form["objective"] if form["method"] in ("", "best") else "welfare"
    names = ("method", "time_limit", "fewest_members")
    order = form.body(FormationOrder, *names, objective=objective, draft=True)
    manager_api.form_coalitions(consortium_id, order, form)
    return see_other(f"/consortia/{consortium_id}#draft")


@router.post("/consortia/{consortium_id}/publish")
def publish_decision(consortium_id: Number, form: ManagerForm) -> Response:
    """Show each member its part of the latest decision."""
    number = form.body(PublicationBody, "number").number
    manager_api.publish_formation(consortium_id, number, form)
    return see_other(f"/consortia/{consortium_id}#train")


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
    step = "evidence" if order.kind == "benefit" else "train"
    return see_other(f"/consortia/{consortium_id}#{step}")


@router.post("/consortia/{consortium_id}/runs/{number}/cancel")
def cancel_run(consortium_id: Number, number: Number, form: ManagerForm) -> Response:
    """Cancel a run."""
    runs_api.cancel_run(consortium_id, number, form)
    return see_other(f"/consortia/{consortium_id}#train")


@router.get("/consortia/{consortium_id}/{form}")
def form_address(consortium_id: Number, form: str, caller: ManagerPage) -> Response:  # noqa: ARG001
    """Redirect to a form, whose address this is after a mistake in it."""
    if form not in FORMS:
        raise NotFoundError("there is no such page")
    return see_other(f"/consortia/{consortium_id}#{FORMS[form]}")


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
