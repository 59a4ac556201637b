"""What a member can ask for: always and only about itself."""

import json
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import FileResponse
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.domain import access, consortia
from fedegoists.coordinator.domain import competitor_reports as reporting
from fedegoists.coordinator.domain.coalition_decisions import formation_of
from fedegoists.coordinator.domain.member_view import member_certificate, member_decision
from fedegoists.coordinator.runs import run_records as records
from fedegoists.coordinator.runs.run_task import FILES
from fedegoists.coordinator.service.identity import (
    AMember,
    Asker,
    TheService,
    shown_certificate,
)
from fedegoists.coordinator.service.responses import REPORT_HEADERS, attachment
from fedegoists.coordinator.service.schemas import (
    ClientCertificate,
    Decision,
    Me,
    MemberRun,
    Number,
    Reports,
    ReportWish,
)
from fedegoists.coordinator.service.state import Service
from fedegoists.coordinator.store.tables import ConsortiumRecord, FormationRecord, Member, RunRecord
from fedegoists.files import read_text

__all__ = ["about", "member_file", "member_runs", "router"]

router = APIRouter(prefix="/api/me", tags=["member"])


def _own(session: Session, asker: Asker) -> tuple[ConsortiumRecord, Member]:
    assert asker.principal.member_id is not None  # of every account with this role
    return consortia.consortium_of(session, asker.principal.member_id)


def about(service: Service, session: Session, asker: Asker) -> Me:
    """Return what a member knows of itself and its consortium."""
    consortium, member = _own(session, asker)
    closed = consortia.is_closed(service.store, session, consortium)
    return Me(
        member=member.name,
        consortium=consortium.name,
        members=[
            other.name
            for other in consortia.members_of(session, consortium)
            if other.state != "expelled"
        ],
        reports="closed" if closed else "open",
        deadline=consortium.deadline,
    )


@router.get("")
def me(service: TheService, asker: AMember) -> Me:
    """Who I am, who else is a member, and whether I may still report."""
    with service.store.read() as session:
        return about(service, session, asker)


@router.get("/reports")
def my_reports(service: TheService, asker: AMember) -> Reports:
    """Whom I have named as competitors."""
    with service.store.read() as session:
        _, member = _own(session, asker)
        return Reports(competitors=list(reporting.reported_by(session, member)))


@router.put("/reports")
def report(body: ReportWish, service: TheService, asker: AMember) -> Reports:
    """Name my competitors, in confidence; whoever is not named any more is withdrawn.

    Nothing of mine will reach a competitor, nor anything of it me. Where the other one named me,
    we count as competitors even if I withdraw.
    """
    wanted = dict.fromkeys(body.competitors)
    with service.store.write() as session:
        consortium, member = _own(session, asker)
        before = reporting.reported_by(session, member)
        for name in before:
            if name not in wanted:
                reporting.withdraw(service.store, session, consortium, member, name)
        for name in wanted:
            if name not in before:
                reporting.report(service.store, session, consortium, member, name)
    return Reports(competitors=list(wanted))


@router.get("/decision")
def decision(service: TheService, asker: AMember) -> Decision:
    """With whom I train, who benefits me, whom I benefit, and what I gain."""
    assert asker.principal.member_id is not None
    with service.store.read() as session:
        found = member_decision(session, asker.principal.member_id)
    if found is None:
        raise NotFoundError("nothing has been decided for you yet")
    return Decision.model_validate(
        {**found.__dict__, "coalition": list(found.coalition)}, from_attributes=False
    )


@router.get("/certificate", response_class=Response)
def certificate(service: TheService, asker: AMember) -> Response:
    """Return the proof that the principles hold for me; `fedegoists verify` checks it."""
    assert asker.principal.member_id is not None
    with service.store.read() as session:
        found = member_certificate(session, asker.principal.member_id)
    if found is None:
        raise NotFoundError("nothing has been decided for you yet")
    return attachment(found.to_json(), "application/json", "certificate.json")


def member_runs(session: Session, asker: Asker) -> list[RunRecord]:
    """Return the training runs that a member took part in, the latest first."""
    consortium, member = _own(session, asker)
    return [
        run
        for run in records.runs_of(session, consortium)
        if run.formation_id is not None and member.name in _participants(session, run)
    ]


def _participants(session: Session, run: RunRecord) -> tuple[str, ...]:
    record = session.get(FormationRecord, run.formation_id)
    assert record is not None
    return formation_of(record).participants


@router.get("/runs")
def my_runs(service: TheService, asker: AMember) -> list[MemberRun]:
    """Training that I took part in."""
    with service.store.read() as session:
        return [
            MemberRun.model_validate(run, from_attributes=True)
            for run in member_runs(session, asker)
        ]


def member_file(
    service: Service, session: Session, asker: Asker, number: int, folder: str, suffix: str
) -> Path:
    """Return a file of a finished run that is for this member alone."""
    _, member = _own(session, asker)
    for run in member_runs(session, asker):
        if run.number == number and run.state == "finished":
            base, name = records.run_folder(service.data, run)
            own = json.loads(read_text(base / name / FILES))[member.name]
            path = base / name / folder / f"{own}{suffix}"
            if path.is_file():
                return path
    raise NotFoundError("there is no such run of yours, or it has not left this")


@router.get("/runs/{number}/report", response_class=Response)
def my_report(number: Number, service: TheService, asker: AMember) -> FileResponse:
    """My page of a run: what I gained, measured on my own test data."""
    with service.store.read() as session:
        path = member_file(service, session, asker, number, "members", ".html")
    return FileResponse(path, media_type="text/html", headers=REPORT_HEADERS)


@router.get("/runs/{number}/model", response_class=Response)
def my_model(number: Number, service: TheService, asker: AMember) -> FileResponse:
    """My model of a run, as a safetensors file."""
    with service.store.read() as session:
        path = member_file(service, session, asker, number, "models", ".safetensors")
    return FileResponse(path, media_type="application/octet-stream", filename="model.safetensors")


@router.put("/client-certificate", status_code=204)
def add_client_certificate(
    body: ClientCertificate, request: Request, service: TheService, asker: AMember
) -> None:
    """Let me also show who I am by a client certificate, which this connection must show too.

    Certificates are no secret: whoever registered another one's would be told what it reports.
    """
    if asker.principal.kind == "certificate":
        raise HTTPException(403, "add a client certificate with your token")
    if shown_certificate(request) != body.sha256:
        raise HTTPException(403, "show the client certificate on the connection that registers it")
    with service.store.write() as session:
        access.add_certificate(service.store, session, asker.principal, body.sha256)
