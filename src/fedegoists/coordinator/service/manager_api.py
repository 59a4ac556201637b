"""The manager's API: consortia, members, graphs, decisions and the audit log."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from fedegoists.coalitions import explain
from fedegoists.coalitions.drawing.scene import formation_scene
from fedegoists.coordinator.domain import accounts, consortia
from fedegoists.coordinator.domain.coalition_decisions import (
    FormationOrder,
    commitment_for,
    formation_of,
    graph_of,
    is_current,
    publish,
    quick_what_if,
    record_benefit,
    what_if_basis,
)
from fedegoists.coordinator.domain.competitor_reports import competition_of
from fedegoists.coordinator.service.api_schemas import (
    AccountBody,
    BenefitBody,
    BenefitView,
    ConsortiumBody,
    ConsortiumView,
    DeadlineBody,
    ExplanationView,
    FormationView,
    GraphsView,
    InvitationView,
    LogCheckView,
    LogEntryView,
    MemberBody,
    MembersBody,
    Name,
    Number,
    WhatIfBody,
    WhatIfView,
)
from fedegoists.coordinator.service.rendering import attachment
from fedegoists.coordinator.service.request_bodies import LargeBody, described_body, parsed
from fedegoists.coordinator.service.request_identity import AManager, Caller
from fedegoists.coordinator.store.audit_check import check_log
from fedegoists.coordinator.store.audit_log import Action, append, entries, entry_line
from fedegoists.coordinator.store.database_tables import BenefitRow, ConsortiumRow, FormationRow
from fedegoists.graphs import BenefitGraph

router = APIRouter(prefix="/api", tags=["manager"])

ENTRIES_PER_PAGE = 200
SEALED = (
    "Its earlier token has ended. The competitors that it reported count as before, but are "
    "sealed: with the new token they can be neither read nor withdrawn. It can report further ones."
)
MOST = 2**31 - 1


# Consortia and members ------------------------------------------------------------------------


@router.get("/consortia")
def list_consortia(caller: AManager) -> list[ConsortiumView]:
    """List all consortia."""
    with caller.service.store.read() as session:
        found = session.scalars(select(ConsortiumRow).order_by(ConsortiumRow.id)).all()
        return [ConsortiumView.of(session, consortium) for consortium in found]


@router.post("/consortia", status_code=201)
def create_consortium(body: ConsortiumBody, caller: AManager) -> ConsortiumView:
    """Found a consortium."""
    with caller.service.store.write() as session:
        found = consortia.create(session, caller.actor, body.name, body.deadline)
        return ConsortiumView.of(session, found)


@router.get("/consortia/{consortium_id}")
def get_consortium(consortium_id: Number, caller: AManager) -> ConsortiumView:
    """Show a consortium with its members."""
    with caller.service.reading(consortium_id) as (session, found):
        return ConsortiumView.of(session, found)


@router.post("/consortia/{consortium_id}/members", status_code=201)
def invite_member(consortium_id: Number, body: MemberBody, caller: AManager) -> InvitationView:
    """Invite an organisation; the invitation is shown once, to be handed to it."""
    with caller.service.writing(consortium_id) as (session, found):
        member, secret = consortia.invite(session, caller.actor, found, body.name)
    return InvitationView(label=member.name, invitation=secret)


@router.post("/consortia/{consortium_id}/invitations", status_code=201)
def invite_members(
    consortium_id: Number, body: MembersBody, caller: AManager
) -> list[InvitationView]:
    """Invite several organisations, all or none; the invitations are shown once."""
    with caller.service.writing(consortium_id) as (session, found):
        made = [consortia.invite(session, caller.actor, found, name) for name in body.names]
        return [InvitationView(label=member.name, invitation=secret) for member, secret in made]


@router.post("/consortia/{consortium_id}/members/{name:path}/invitation", status_code=201)
def invite_member_again(consortium_id: Number, name: Name, caller: AManager) -> InvitationView:
    """Invite a member again that lost its token; the old token ends.

    Its earlier reports of competitors count as before, but the new token does not show them.
    """
    with caller.service.writing(consortium_id) as (session, found):
        secret = consortia.invite_again(session, caller.actor, found, name)
    return InvitationView(label=name, invitation=secret, note=SEALED)


@router.delete("/consortia/{consortium_id}/members/{name:path}", status_code=204)
def expel_member(consortium_id: Number, name: Name, caller: AManager) -> None:
    """Expel a member. Its token ends now, and later decisions leave it out."""
    with caller.service.writing(consortium_id) as (session, found):
        consortia.expel(session, caller.actor, found, name)


@router.put("/consortia/{consortium_id}/deadline")
def set_deadline(consortium_id: Number, body: DeadlineBody, caller: AManager) -> ConsortiumView:
    """Set the end of the period in which members may report competitors."""
    with caller.service.writing(consortium_id) as (session, found):
        consortia.set_deadline(session, caller.actor, found, body.deadline)
        return ConsortiumView.of(session, found)


@router.post("/consortia/{consortium_id}/reports/close")
def close_reports(consortium_id: Number, caller: AManager) -> ConsortiumView:
    """Close the reports."""
    with caller.service.writing(consortium_id) as (session, found):
        consortia.close_reports(session, caller.actor, found)
        return ConsortiumView.of(session, found)


@router.post("/consortia/{consortium_id}/reports/reopen")
def reopen_reports(consortium_id: Number, caller: AManager) -> ConsortiumView:
    """Let members change their reports again."""
    with caller.service.writing(consortium_id) as (session, found):
        consortia.reopen_reports(session, caller.actor, found)
        return ConsortiumView.of(session, found)


# Graphs and decisions ---------------------------------------------------------------------------


@router.put("/consortia/{consortium_id}/benefit", openapi_extra=described_body(BenefitBody))
def put_benefit(consortium_id: Number, caller: AManager, content: LargeBody) -> BenefitView:
    """Record a benefit graph among the members."""
    body = parsed(BenefitBody, content)
    estimate, names = upload_benefit(
        consortium_id, lambda names: BenefitGraph.from_edges(body.edges, names), caller
    )
    return BenefitView(
        number=estimate.id, source=estimate.source, participants=names, edges=len(body.edges)
    )


def upload_benefit(
    consortium_id: int, read: Callable[[list[str]], BenefitGraph], caller: Caller
) -> tuple[BenefitRow, list[str]]:
    """Record an uploaded benefit graph, given a function that reads it for the members' names."""
    with caller.service.writing(consortium_id) as (session, found):
        names = consortia.member_names(session, found)
        return record_benefit(session, caller.actor, found, read(names), "uploaded"), names


@router.get("/consortia/{consortium_id}/graphs")
def graphs(consortium_id: Number, caller: AManager) -> GraphsView:
    """Show the benefit and competition graphs among the members that have joined."""
    with caller.service.reading(consortium_id) as (session, found):
        names = consortia.participants_of(session, found)
        estimate = session.latest(BenefitRow, found)
        competition = competition_of(session, found)
        edges: list[tuple[str, str, float]] = []
        if estimate is not None:
            known = graph_of(estimate)
            among = [name for name in names if name in known.participants]
            edges = list(known.restricted_to(among).edges())
    return GraphsView(participants=names, benefit=edges, competition=list(competition.pairs))


@router.post("/consortia/{consortium_id}/formations", status_code=201)
def form_coalitions(consortium_id: Number, body: FormationOrder, caller: AManager) -> FormationView:
    """Decide who trains with whom. Reports must be closed.

    Members see their part at once or, of a draft, when it is published.
    """
    record = caller.service.decider.form(caller.actor, consortium_id, body)
    with caller.service.reading(consortium_id) as (session, found):
        return FormationView.of(session, found, record)


@router.get("/consortia/{consortium_id}/formations")
def list_formations(consortium_id: Number, caller: AManager) -> list[FormationView]:
    """List all decisions, the latest first."""
    with caller.service.reading(consortium_id) as (session, found):
        records = session.scalars(
            select(FormationRow)
            .where(FormationRow.consortium_id == found.id)
            .order_by(FormationRow.number.desc())
        ).all()
        return [FormationView.of(session, found, record) for record in records]


@router.get("/consortia/{consortium_id}/formations/{number}")
def get_formation(consortium_id: Number, number: Number, caller: AManager) -> FormationView:
    """Show a decision."""
    with caller.service.reading(consortium_id) as (session, found):
        return FormationView.of(session, found, session.numbered(FormationRow, found, number))


@router.post("/consortia/{consortium_id}/formations/{number}/publish")
def publish_formation(consortium_id: Number, number: Number, caller: AManager) -> FormationView:
    """Publish a draft: each member then sees its own part, which cannot be taken back."""
    with caller.service.writing(consortium_id) as (session, found):
        record = publish(session, caller.actor, found, number)
        return FormationView.of(session, found, record)


@router.get("/consortia/{consortium_id}/formations/{number}/explanations")
def explanations(
    consortium_id: Number,
    number: Number,
    member: Annotated[Name, Query()],
    caller: AManager,
    other: Annotated[Name | None, Query()] = None,
) -> list[ExplanationView]:
    """Explain why a member is with or apart from another one, or each. They name competitors."""
    with caller.service.reading(consortium_id) as (session, found):
        formation = formation_of(session.numbered(FormationRow, found, number))
    others = [name for name in formation.participants if name != member]
    return [
        ExplanationView(member=member, other=one, sentence=explain(formation, member, one).sentence)
        for one in (others if other is None else [other])
    ]


@router.get("/consortia/{consortium_id}/formations/{number}/certificate", response_class=Response)
def get_certificate(consortium_id: Number, number: Number, caller: AManager) -> Response:
    """Return the whole certificate. It names competitors: not for members."""
    with caller.service.reading(consortium_id) as (session, found):
        record = session.numbered(FormationRow, found, number)
    return attachment(record.certificate, "certificate.json")


@router.post("/consortia/{consortium_id}/formations/{number}/opening", response_class=Response)
def open_to_auditor(consortium_id: Number, number: Number, caller: AManager) -> Response:
    """Open the whole commitment for an auditor, which is logged."""
    with caller.service.reading(consortium_id) as (session, found):
        record = session.numbered(FormationRow, found, number)
    opening = commitment_for(found, record).opening()
    with caller.service.store.write() as session:
        append(session, caller.actor, Action.OPENED_TO_AUDITOR, found, number=number)
    return attachment(opening.to_json(), "opening.json")


@router.post("/consortia/{consortium_id}/formations/{number}/what-if")
def what_if(
    consortium_id: Number, number: Number, body: WhatIfBody, caller: AManager
) -> WhatIfView:
    """Show the effect of a hypothetical change; nothing of it is stored."""
    with caller.service.reading(consortium_id) as (session, found):
        basis = what_if_basis(session, found, number)
        current = is_current(session, found, number, basis)
    result = quick_what_if(basis, body.add, body.remove, body.leaves)
    return WhatIfView(
        current=current,
        coalitions=[list(group) for group in result.coalitions],
        welfare=result.welfare,
        welfare_change=result.welfare_change,
        moved=list(result.moved),
        changes={name: change for name, change in result.utility_changes.items() if change},
        scene=formation_scene(result.after, portrait=body.portrait) if body.scene else None,
    )


# The audit log ---------------------------------------------------------------------------------


@router.get("/audit-log")
def audit_log(caller: AManager, after: int = 0) -> list[LogEntryView]:
    """Show the audit log, some entries at a time."""
    with caller.service.store.read() as session:
        found = islice(entries(session, min(max(after, 0), MOST)), ENTRIES_PER_PAGE)
        return [LogEntryView.model_validate(entry) for entry in found]


@router.get("/audit-log/check")
def check_audit_log(
    caller: AManager, head: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$")] = None
) -> LogCheckView:
    """Check that nothing was altered: the chain, and the tables against the log.

    `head` is a head noted earlier; an entry must still have this hash.
    """
    with caller.service.store.read() as session:
        return LogCheckView.model_validate(check_log(session, head))


@router.get("/audit-log/file", response_class=Response)
def download_audit_log(caller: AManager) -> StreamingResponse:
    """Return all entries, one JSON object a line, as `fedegoists audit-log show` prints them."""

    def lines() -> Iterator[str]:
        with caller.service.store.read() as session:
            for entry in entries(session):
                yield entry_line(entry) + "\n"

    headers = {"Content-Disposition": 'attachment; filename="audit-log.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


# The coordinator itself -------------------------------------------------------------------------


@router.get("/engines")
def engines(caller: AManager) -> list[str]:
    """List the engines that runs can be started with."""
    return caller.service.reach.engines


@router.post("/accounts", status_code=201)
def invite_account(body: AccountBody, caller: AManager) -> InvitationView:
    """Invite another manager, or a monitor."""
    with caller.service.store.write() as session:
        secret = accounts.invite_account(session, caller.actor, body.role, body.label)
    return InvitationView(label=body.label, invitation=secret)


@router.delete("/accounts/{label:path}", status_code=204)
def end_accounts(label: Name, caller: AManager) -> None:
    """End every other manager and monitor of this name, such as after a token was lost."""
    with caller.service.store.write() as session:
        accounts.end_others_named(session, caller.principal, label)
