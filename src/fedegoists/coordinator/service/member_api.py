"""A member's API: always and only about itself."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import FileResponse

from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.domain import accounts, competitor_reports, consortia
from fedegoists.coordinator.domain.coalition_decisions import formation_of
from fedegoists.coordinator.domain.member_view import (
    MemberDecision,
    member_certificate,
    member_decision,
)
from fedegoists.coordinator.runs.run_orders import FILES
from fedegoists.coordinator.runs.run_records import run_folder, runs_of
from fedegoists.coordinator.service.api_schemas import (
    CertificateBody,
    MemberRunView,
    MeView,
    Number,
    ReportsBody,
    ReportsView,
)
from fedegoists.coordinator.service.rendering import attachment, report_response
from fedegoists.coordinator.service.request_identity import AMember, Caller, shown_certificate
from fedegoists.coordinator.store import Transaction
from fedegoists.coordinator.store.database_tables import FormationRow, MemberRow, RunRow
from fedegoists.files import read_text
from fedegoists.learning.sealed_models import MODELS_FOLDER, check_run_model

router = APIRouter(prefix="/api/me", tags=["member"])

Found = TypeVar("Found")


def _member(session: Transaction, caller: Caller) -> MemberRow:
    assert caller.principal.member_id is not None  # of every account with this role
    return consortia.member_with(session, caller.principal.member_id)


@router.get("")
def me(caller: AMember) -> MeView:
    """Show me, my consortium and its members, and whether reports are open."""
    with caller.service.store.read() as session:
        member = _member(session, caller)
        consortium = member.consortium
        return MeView(
            member=member.name,
            consortium=consortium.name,
            members=consortia.member_names(session, consortium),
            reports="closed" if consortia.is_closed(session, consortium) else "open",
            deadline=consortium.deadline,
        )


@router.get("/reports")
def my_reports(caller: AMember) -> ReportsView:
    """Show the competitors that I reported."""
    with caller.service.store.read() as session:
        member = _member(session, caller)
        found = competitor_reports.reported_by(session, member)
    return _reports_view(member, found)


@router.put("/reports")
def report(body: ReportsBody, caller: AMember) -> ReportsView:
    """Report my competitors, in confidence; reports of all others are withdrawn.

    With `finished`, the manager sees that I have finished. The manager also sees which members
    compete, but not which of the two reported it.
    Models made from my data never reach a competitor, nor its models me. If the other one
    reported me, we remain competitors even after I withdraw.
    """
    with caller.service.store.write() as session:
        member = _member(session, caller)
        before = competitor_reports.reported_by(session, member)
        wanted = dict.fromkeys(body.competitors)
        for name in before:
            if name not in wanted:
                competitor_reports.withdraw(session, member, name)
        for name in wanted:
            if name not in before:
                competitor_reports.report(session, member, name)
        if body.finished:
            competitor_reports.finish_reporting(session, member)
    return _reports_view(member, wanted)


@router.post("/reports/finished")
def finish_reporting(caller: AMember) -> ReportsView:
    """Say that I have reported all of my competitors, or have none.

    The note that the manager sees is the same in both cases.
    """
    with caller.service.store.write() as session:
        member = _member(session, caller)
        competitor_reports.finish_reporting(session, member)
        found = competitor_reports.reported_by(session, member)
    return _reports_view(member, found)


def _reports_view(member: MemberRow, competitors: Iterable[str]) -> ReportsView:
    return ReportsView(
        competitors=list(competitors),
        sealed=member.invited_again,
        finished=member.reported is not None,
    )


@router.get("/decision")
def decision(caller: AMember) -> MemberDecision:
    """Show my coalition, and the benefits that I receive and give in it."""
    with caller.service.store.read() as session:
        return _decided(member_decision(session, _member(session, caller)))


@router.get("/certificate", response_class=Response)
def certificate(caller: AMember) -> Response:
    """Return the proof that the principles hold for me; `fedegoists verify` checks it."""
    with caller.service.store.read() as session:
        found = _decided(member_certificate(session, _member(session, caller)))
    return attachment(found.to_json(), "certificate.json")


def _decided(found: Found | None) -> Found:
    if found is None:
        raise NotFoundError("nothing has been decided for you yet")
    return found


def _runs(session: Transaction, member: MemberRow) -> list[RunRow]:
    """Return the training runs that a member took part in, the latest first."""

    def took_part(run: RunRow) -> bool:
        record = session.get_one(FormationRow, run.formation_id)
        return member.name in formation_of(record).participants

    found = runs_of(session, member.consortium)
    return [run for run in found if run.formation_id is not None and took_part(run)]


@router.get("/runs")
def my_runs(caller: AMember) -> list[MemberRunView]:
    """List the training runs that I took part in."""
    with caller.service.store.read() as session:
        found = _runs(session, _member(session, caller))
        return [MemberRunView.model_validate(run) for run in found]


def _file(caller: Caller, number: int, folder: str, suffix: str) -> Path:
    """Return a file of a finished run that is for this member alone."""
    with caller.service.store.read() as session:
        member = _member(session, caller)
        runs = _runs(session, member)
    for run in runs:
        if run.number == number and run.state == "finished":
            base, name = run_folder(caller.service.data, run)
            own = json.loads(read_text(base / name / FILES))[member.name]
            path = base / name / folder / f"{own}{suffix}"
            if path.is_file():
                return path
    raise NotFoundError("there is no such run of yours, or it has not left this")


@router.get("/runs/{number}/report", response_class=Response)
def my_report(number: Number, caller: AMember) -> Response:
    """Return my page of a run's report: my gain, measured on my own test data."""
    return report_response(_file(caller, number, "members", ".html"))


@router.get("/runs/{number}/model", response_class=Response)
def my_model(number: Number, caller: AMember) -> FileResponse:
    """Return my model of a run, as a safetensors file."""
    path = _file(caller, number, MODELS_FOLDER, ".safetensors")
    check_run_model(path.parent.parent, path.name)
    return FileResponse(path, media_type="application/octet-stream", filename="model.safetensors")


@router.put("/client-certificate", status_code=204)
def add_client_certificate(body: CertificateBody, request: Request, caller: AMember) -> None:
    """Register a client certificate as my credential; this connection must show it too.

    Certificates are not secret: otherwise a member could register the certificate of another,
    and the other would unknowingly report under its name.
    """
    if caller.principal.kind == "certificate":
        raise HTTPException(403, "add a client certificate with your token")
    if shown_certificate(request) != body.sha256:
        raise HTTPException(403, "show the client certificate on the connection that registers it")
    with caller.service.store.write() as session:
        accounts.add_certificate(session, caller.principal, body.sha256)
