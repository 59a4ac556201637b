"""The manager's pages: all consortia, and one of them with everything about it."""

import datetime
import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response, UploadFile
from pydantic import ValidationError
from sqlalchemy import select

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import coalition_decisions as deciding
from fedegoists.coordinator.domain import consortia
from fedegoists.coordinator.domain.decision_validity import is_current
from fedegoists.coordinator.runs import run_records as records
from fedegoists.coordinator.runs.run_plan import RunPlan
from fedegoists.coordinator.service.identity import Asker
from fedegoists.coordinator.service.manager_api import consortium_view, graphs_now
from fedegoists.coordinator.service.rendering import page, see_other, signed_in
from fedegoists.coordinator.service.schemas import FormationView, Number, RunView
from fedegoists.coordinator.service.state import Service, service_of
from fedegoists.coordinator.store.tables import ConsortiumRecord
from fedegoists.coordinator.store.times import as_moment
from fedegoists.errors import FedEgoistsError, GraphError
from fedegoists.graphs import BenefitGraph

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

Field = Annotated[str, Form(max_length=300)]


@router.get("/consortia")
def consortia_page(request: Request) -> Response:
    """Show all consortia."""
    asker = signed_in(request, role="manager")
    service = service_of(request)
    with service.store.read() as session:
        ids = session.scalars(select(ConsortiumRecord.id).order_by(ConsortiumRecord.id)).all()
    found = [consortium_view(service, consortium_id) for consortium_id in ids]
    return page(request, "consortia.html.j2", asker, consortia=found)


@router.post("/consortia")
def found_consortium(request: Request, csrf: Field, name: Field) -> Response:
    """Found a consortium."""
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    with service.store.write() as session:
        found = consortia.create(service.store, session, asker.actor, name.strip())
    return see_other(f"/consortia/{found.id}")


def _consortium_page(
    request: Request, asker: Asker, consortium_id: Number, **more: Any
) -> Response:
    service = service_of(request)
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        formation = deciding.latest_formation(session, found)
        estimate = deciding.latest_benefit(session, found)
        runs = records.runs_of(session, found)
        shown = None if formation is None else FormationView.of(session, found, formation)
        edges = 0 if estimate is None else sum(1 for _ in deciding.graph_of(estimate).edges())
    content: dict[str, Any] = {"invited": None, **more}
    return page(
        request,
        "consortium.html.j2",
        asker,
        consortium=consortium_view(service, consortium_id),
        formation=shown,
        estimate=estimate,
        edges=edges,
        runs=[RunView.of(run) for run in runs],
        sources=_sources(service),
        engines=service.reach.engines,
        **content,
    )


def _sources(service: Service) -> list[str]:
    """Return the folders with silos' data that are there to choose from."""
    silos = service.data / "silos"
    found = silos.iterdir() if silos.is_dir() else ()
    return sorted(folder.name for folder in found if folder.is_dir())


@router.get("/consortia/{consortium_id}")
def consortium_page(request: Request, consortium_id: Number) -> Response:
    """Show one consortium with its graphs, decisions and runs."""
    asker = signed_in(request, role="manager")
    return _consortium_page(request, asker, consortium_id)


@router.get("/consortia/{consortium_id}/picture.json")
def picture(request: Request, consortium_id: Number) -> dict[str, Any]:
    """Return what the picture shows: the latest decision, or the graphs before there is one."""
    signed_in(request, role="manager")
    service = service_of(request)
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        record = deciding.latest_formation(session, found)
        if record is not None:
            formation = deciding.formation_of(record)
            current = is_current(session, found, record.number, formation)
    if record is None:
        graphs = graphs_now(service, consortium_id)
        return {
            "number": None,
            "current": True,
            "participants": graphs.participants,
            "coalitions": [[name] for name in graphs.participants],
            "benefit": _indexed(graphs.participants, graphs.benefit),
            "competition": _indexed(graphs.participants, graphs.competition),
        }
    names = formation.participants
    return {
        "number": record.number,
        "current": current,
        "participants": names,
        "coalitions": formation.coalitions,
        "benefit": _indexed(names, formation.benefit.edges()),
        "competition": _indexed(names, formation.competition.pairs),
    }


def _indexed(names: Any, links: Any) -> list[list[Any]]:
    """Return links with positions for names, which is shorter for thousands of them."""
    place = {name: k for k, name in enumerate(names)}
    return [[place[a], place[b], *(round(w, 6) for w in rest)] for a, b, *rest in links]


@router.post("/consortia/{consortium_id}/invite")
def invite(
    request: Request,
    consortium_id: Number,
    csrf: Field,
    name: Field,
    again: Annotated[str, Form(max_length=5)] = "",
) -> Response:
    """Invite a member, or invite it again; the invitation is shown once.

    Only when `again` says so does the token of a member end: whoever loads the answer anew sends
    the form again.
    """
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        name = name.strip()
        if again:
            secret = consortia.invite_again(service.store, session, asker.actor, found, name)
        else:
            _, secret = consortia.invite(service.store, session, asker.actor, found, name)
    return _consortium_page(request, asker, consortium_id, invited=(name, secret))


@router.post("/consortia/{consortium_id}/expel")
def expel(request: Request, consortium_id: Number, csrf: Field, name: Field) -> Response:
    """Expel a member."""
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        consortia.expel(service.store, session, asker.actor, found, name)
    return see_other(f"/consortia/{consortium_id}#members")


@router.post("/consortia/{consortium_id}/reports")
def change_reports(
    request: Request,
    consortium_id: Number,
    csrf: Field,
    action: Annotated[str, Form(pattern="^(close|reopen|deadline)$")],
    deadline: Annotated[str, Form(max_length=40)] = "",
) -> Response:
    """Close or reopen reports, or set their deadline."""
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        if action == "close":
            consortia.close_reports(service.store, session, asker.actor, found)
        elif action == "reopen":
            consortia.reopen_reports(service.store, session, asker.actor, found)
        else:
            moment = _moment(deadline)
            consortia.set_deadline(service.store, session, asker.actor, found, moment)
    return see_other(f"/consortia/{consortium_id}")


def _moment(text: str) -> str | None:
    if not text.strip():
        return None
    try:
        return as_moment(datetime.datetime.fromisoformat(text.strip()))
    except ValueError:
        raise ConflictError(f"{text!r} is not a date and time, such as 2026-12-24T18:00") from None


@router.post("/consortia/{consortium_id}/benefit")
def upload_benefit(
    request: Request, consortium_id: Number, csrf: Field, file: UploadFile
) -> Response:
    """Record who benefits whom from a CSV with source,target,weight."""
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "benefit.csv"
        path.write_bytes(file.file.read())
        with service.store.write() as session:
            found = consortia.consortium_with(session, consortium_id)
            members = consortia.members_of(session, found)
            names = [member.name for member in members if member.state != "expelled"]
            try:
                graph = BenefitGraph.from_csv(path, names)
            except FedEgoistsError as error:
                raise GraphError(str(error).replace(str(path), "the file")) from None
            deciding.record_benefit(service.store, session, asker.actor, found, graph, "uploaded")
    return see_other(f"/consortia/{consortium_id}#coalitions")


@router.post("/consortia/{consortium_id}/form")
def form(
    request: Request,
    consortium_id: Number,
    csrf: Field,
    method: Annotated[str, Form(pattern="^(best|stable|published|cliques)$")] = "best",
    objective: Annotated[str, Form(pattern="^(welfare|fair|participation)$")] = "welfare",
    time_limit: Annotated[float, Form(ge=0.05, le=60)] = 1.0,
) -> Response:
    """Decide who trains with whom."""
    asker = signed_in(request, csrf, role="manager")
    wish = deciding.Wish(method, objective if method == "best" else "welfare", time_limit)  # type: ignore[arg-type]
    service_of(request).decider.form(asker.actor, consortium_id, wish)
    return see_other(f"/consortia/{consortium_id}#coalitions")


@router.post("/consortia/{consortium_id}/runs")
def start_run(
    request: Request,
    consortium_id: Number,
    csrf: Field,
    kind: Annotated[str, Form(pattern="^(benefit|training)$")],
    engine: Annotated[str, Form(max_length=40)] = "simulation",
    source: Field = "",
    methods: Field = "local, fedavg+ft, fedegoists",
    seeds: Annotated[int, Form()] = 3,
    steps: Annotated[str, Form(max_length=10)] = "",
    threshold: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Start a run."""
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    try:
        plan = RunPlan.model_validate(
            {
                "source": source.strip() or None,
                "methods": [part.strip() for part in methods.split(",") if part.strip()],
                "seeds": seeds,
                "benefit_steps" if kind == "benefit" else "steps": steps.strip() or None,
                "threshold": threshold.strip() or None,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConflictError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    service.queue.ask(asker.actor, consortium_id, kind, engine, plan)  # type: ignore[arg-type]
    return see_other(f"/consortia/{consortium_id}#runs")


@router.post("/consortia/{consortium_id}/runs/{number}/cancel")
def cancel_run(request: Request, consortium_id: Number, number: Number, csrf: Field) -> Response:
    """Have a run stop."""
    asker = signed_in(request, csrf, role="manager")
    service = service_of(request)
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        run = records.run_numbered(session, found, number)
        records.cancel(service.store, session, asker.actor, run)
    return see_other(f"/consortia/{consortium_id}#runs")
