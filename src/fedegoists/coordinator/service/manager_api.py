"""What a manager can ask for: consortia, members, graphs and decisions."""

from fastapi import APIRouter, Response
from sqlalchemy import select

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import access, consortia
from fedegoists.coordinator.domain import coalition_decisions as deciding
from fedegoists.coordinator.domain.competitor_reports import competition_of
from fedegoists.coordinator.domain.decision_validity import is_current
from fedegoists.coordinator.service.identity import AManager, TheService
from fedegoists.coordinator.service.responses import attachment
from fedegoists.coordinator.service.schemas import (
    Benefit,
    BenefitUpload,
    Consortium,
    Deadline,
    FormationView,
    FormationWish,
    Graphs,
    Invitation,
    MemberName,
    Name,
    NewAccount,
    NewConsortium,
    Number,
    WhatIfAnswer,
    WhatIfQuestion,
)
from fedegoists.coordinator.service.state import Service
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.tables import ConsortiumRecord, FormationRecord
from fedegoists.graphs import BenefitGraph

__all__ = ["consortium_view", "graphs_now", "router"]

router = APIRouter(prefix="/api", tags=["manager"])


def consortium_view(service: Service, consortium_id: int) -> Consortium:
    """Return a consortium with its members."""
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        closed = consortia.is_closed(service.store, session, found)
        return Consortium.of(found, list(consortia.members_of(session, found)), closed)


# Consortia and members ------------------------------------------------------------------------


@router.get("/consortia")
def list_consortia(service: TheService, _: AManager) -> list[Consortium]:
    """List all consortia."""
    with service.store.read() as session:
        found = session.scalars(select(ConsortiumRecord.id).order_by(ConsortiumRecord.id)).all()
    return [consortium_view(service, consortium_id) for consortium_id in found]


@router.post("/consortia", status_code=201)
def create_consortium(body: NewConsortium, service: TheService, asker: AManager) -> Consortium:
    """Found a consortium."""
    with service.store.write() as session:
        found = consortia.create(service.store, session, asker.actor, body.name, body.moment())
    return consortium_view(service, found.id)


@router.get("/consortia/{consortium_id}")
def get_consortium(consortium_id: Number, service: TheService, _: AManager) -> Consortium:
    """Show a consortium with its members."""
    return consortium_view(service, consortium_id)


@router.post("/consortia/{consortium_id}/members", status_code=201)
def invite_member(
    consortium_id: Number, body: MemberName, service: TheService, asker: AManager
) -> Invitation:
    """Invite an organisation; the invitation is shown once, to be handed to it."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        member, secret = consortia.invite(service.store, session, asker.actor, found, body.name)
    return Invitation(label=member.name, invitation=secret)


@router.post("/consortia/{consortium_id}/members/{name:path}/invitation", status_code=201)
def invite_member_again(
    consortium_id: Number, name: Name, service: TheService, asker: AManager
) -> Invitation:
    """Invite a member who lost its token again; the old one ends."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        secret = consortia.invite_again(service.store, session, asker.actor, found, name)
    return Invitation(label=name, invitation=secret)


@router.delete("/consortia/{consortium_id}/members/{name:path}", status_code=204)
def expel_member(consortium_id: Number, name: Name, service: TheService, asker: AManager) -> None:
    """Expel a member. Its token ends now, and later decisions do without it."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        consortia.expel(service.store, session, asker.actor, found, name)


@router.put("/consortia/{consortium_id}/deadline")
def set_deadline(
    consortium_id: Number, body: Deadline, service: TheService, asker: AManager
) -> Consortium:
    """Say until when members may report competitors."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        consortia.set_deadline(service.store, session, asker.actor, found, body.moment())
    return consortium_view(service, consortium_id)


@router.post("/consortia/{consortium_id}/reports/close")
def close_reports(consortium_id: Number, service: TheService, asker: AManager) -> Consortium:
    """Freeze what has been reported."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(service.store, session, asker.actor, found)
    return consortium_view(service, consortium_id)


@router.post("/consortia/{consortium_id}/reports/reopen")
def reopen_reports(consortium_id: Number, service: TheService, asker: AManager) -> Consortium:
    """Let members change what they report again."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        consortia.reopen_reports(service.store, session, asker.actor, found)
    return consortium_view(service, consortium_id)


# Graphs and decisions ---------------------------------------------------------------------------


@router.put("/consortia/{consortium_id}/benefit")
def put_benefit(
    consortium_id: Number, body: BenefitUpload, service: TheService, asker: AManager
) -> Benefit:
    """Record who benefits whom, among the members."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        names = [
            member.name
            for member in consortia.members_of(session, found)
            if member.state != "expelled"
        ]
        graph = BenefitGraph.from_edges(body.edges, names)
        estimate = deciding.record_benefit(
            service.store, session, asker.actor, found, graph, "uploaded"
        )
    return Benefit(
        number=estimate.id, source=estimate.source, participants=names, edges=len(body.edges)
    )


def graphs_now(service: Service, consortium_id: int) -> Graphs:
    """Return both graphs among those who have joined."""
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        names = [member.name for member in consortia.participants_of(session, found)]
        estimate = deciding.latest_benefit(session, found)
        competition = competition_of(session, found)
        edges: list[tuple[str, str, float]] = []
        if estimate is not None:
            known = deciding.graph_of(estimate)
            among = [name for name in names if name in known.participants]
            edges = list(known.restricted_to(among).edges())
    return Graphs(participants=names, benefit=edges, competition=list(competition.pairs))


@router.get("/consortia/{consortium_id}/graphs")
def graphs(consortium_id: Number, service: TheService, _: AManager) -> Graphs:
    """Show both graphs: who benefits whom, and who competes."""
    return graphs_now(service, consortium_id)


@router.post("/consortia/{consortium_id}/formations", status_code=201)
def form_coalitions(
    consortium_id: Number, body: FormationWish, service: TheService, asker: AManager
) -> FormationView:
    """Decide who trains with whom. Reports must be closed; members see their part at once."""
    if body.objective != "welfare" and body.method != "best":
        raise ConflictError(f"the objective {body.objective!r} needs the method 'best'")
    wish = deciding.Wish(body.method, body.objective, body.time_limit, body.seed)
    record = service.decider.form(asker.actor, consortium_id, wish)
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        return FormationView.of(session, found, record)


@router.get("/consortia/{consortium_id}/formations")
def list_formations(consortium_id: Number, service: TheService, _: AManager) -> list[FormationView]:
    """List all decisions, the latest first."""
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        records = session.scalars(
            select(FormationRecord)
            .where(FormationRecord.consortium_id == found.id)
            .order_by(FormationRecord.number.desc())
        ).all()
        return [FormationView.of(session, found, record) for record in records]


def _record(
    service: Service, consortium_id: int, number: int
) -> tuple[ConsortiumRecord, FormationRecord]:
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        return found, deciding.formation_record(session, found, number)


@router.get("/consortia/{consortium_id}/formations/{number}")
def get_formation(
    consortium_id: Number, number: Number, service: TheService, _: AManager
) -> FormationView:
    """Show a decision."""
    found, record = _record(service, consortium_id, number)
    with service.store.read() as session:
        return FormationView.of(session, found, record)


@router.get("/consortia/{consortium_id}/formations/{number}/certificate", response_class=Response)
def get_certificate(
    consortium_id: Number, number: Number, service: TheService, _: AManager
) -> Response:
    """Return the whole certificate. It names competitors: not for members."""
    _found, record = _record(service, consortium_id, number)
    return attachment(record.certificate, "application/json", "certificate.json")


@router.post("/consortia/{consortium_id}/formations/{number}/opening", response_class=Response)
def open_to_auditor(
    consortium_id: Number, number: Number, service: TheService, asker: AManager
) -> Response:
    """Open the commitment wholly, for an auditor. That is written down."""
    found, record = _record(service, consortium_id, number)
    opening = deciding.commitment_for(found, record).opening()
    with service.store.write() as session:
        details = {"consortium": found.name, "number": number}
        append(service.store, session, asker.actor, Action.OPENED_TO_AUDITOR, details)
    return attachment(opening.to_json(), "application/json", "opening.json")


@router.post("/consortia/{consortium_id}/formations/{number}/what-if")
def what_if(
    consortium_id: Number,
    number: Number,
    body: WhatIfQuestion,
    service: TheService,
    _: AManager,
) -> WhatIfAnswer:
    """Say what a change would bring; nothing is kept of it."""
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        trial = deciding.trial_of(session, found, number)
        current = is_current(session, found, number, trial)
    result = deciding.quick_what_if(trial, body.add, body.remove, body.leaves)
    return WhatIfAnswer(
        current=current,
        coalitions=[list(group) for group in result.coalitions],
        welfare=result.welfare,
        welfare_change=result.welfare_change,
        moved=list(result.moved),
        changes={name: change for name, change in result.utility_changes.items() if change},
    )


# The coordinator itself -------------------------------------------------------------------------


@router.get("/engines")
def engines(service: TheService, _: AManager) -> list[str]:
    """List the engines that runs can be started with."""
    return service.reach.engines


@router.post("/accounts", status_code=201)
def invite_account(body: NewAccount, service: TheService, asker: AManager) -> Invitation:
    """Invite another manager, or a monitor."""
    with service.store.write() as session:
        secret = access.invite_account(service.store, session, asker.actor, body.role, body.label)
    return Invitation(label=body.label, invitation=secret)


@router.delete("/accounts/{label:path}", status_code=204)
def end_accounts(label: Name, service: TheService, asker: AManager) -> None:
    """End every other manager and monitor of this name: a token that was lost works no more."""
    with service.store.write() as session:
        access.end_others_named(service.store, session, asker.principal, label)
