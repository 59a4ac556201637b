"""A member's own page."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response

from fedegoists.coordinator.domain import competitor_reports as reporting
from fedegoists.coordinator.domain import consortia
from fedegoists.coordinator.domain.member_view import member_decision
from fedegoists.coordinator.service.member_api import about, member_runs
from fedegoists.coordinator.service.rendering import page, see_other, signed_in
from fedegoists.coordinator.service.state import service_of

__all__ = ["router"]

router = APIRouter(include_in_schema=False)


@router.get("/member")
def member_page(request: Request) -> Response:
    """Show a member what concerns it."""
    asker = signed_in(request, role="member")
    service = service_of(request)
    member_id = asker.principal.member_id
    assert member_id is not None
    with service.store.read() as session:
        _, member = consortia.consortium_of(session, member_id)
        return page(
            request,
            "member.html.j2",
            asker,
            me=about(service, session, asker),
            reported=reporting.reported_by(session, member),
            decision=member_decision(session, member_id),
            runs=member_runs(session, asker),
        )


@router.post("/member/reports")
def change_report(
    request: Request,
    csrf: Annotated[str, Form(max_length=300)],
    name: Annotated[str, Form(max_length=300)],
    action: Annotated[str, Form(pattern="^(report|withdraw)$")],
) -> Response:
    """Report a competitor, or take it back."""
    asker = signed_in(request, csrf, role="member")
    service = service_of(request)
    assert asker.principal.member_id is not None
    act = reporting.report if action == "report" else reporting.withdraw
    with service.store.write() as session:
        own = consortia.consortium_of(session, asker.principal.member_id)
        act(service.store, session, *own, name)
    return see_other("/member#reports")
