"""A member's own page."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.service import member_api
from fedegoists.coordinator.service.api_schemas import ReportsBody
from fedegoists.coordinator.service.rendering import page, see_other
from fedegoists.coordinator.service.request_identity import (
    Caller,
    MemberForm,
    MemberPage,
    SubmittedForm,
)

router = APIRouter(include_in_schema=False)


@router.get("/member")
def member_page(request: Request, caller: MemberPage) -> Response:
    """Show a member its coalition, its reports and its runs."""
    return _member_page(request, caller)


@router.get("/member/reports")
def reports_form(caller: MemberPage) -> Response:  # noqa: ARG001, it must be signed in
    """Redirect to the form, whose address this is after a mistake in it."""
    return see_other("/member#reports")


def page_again(request: Request, form: SubmittedForm, status: int, detail: str) -> Response | None:
    """Return the page with an error beside the form it came from, as it was filled in."""
    return _member_page(request, form, status, detail, form.ticked)


def _member_page(
    request: Request,
    caller: Caller,
    status: int = 200,
    problem: str = "",
    ticked: Sequence[str] | None = None,
) -> Response:
    try:
        decision = member_api.decision(caller)
    except NotFoundError:
        decision = None
    reports = member_api.my_reports(caller)
    return page(
        request,
        "member.html.j2",
        caller,
        status,
        problem=problem,
        me=member_api.me(caller),
        reports=reports,
        ticked=reports.competitors if ticked is None else ticked,
        decision=decision,
        runs=member_api.my_runs(caller),
    )


@router.post("/member/reports")
def change_report(form: MemberForm) -> Response:
    """Report all ticked competitors and no others, and say whether these are all."""
    action = form["action"]
    if action not in ("save", "finish"):  # a report binds: none is made by accident
        raise NotFoundError("the form is out of date; load the page again")
    given = {"competitors": list(form.ticked), "finished": action == "finish"}
    member_api.report(form.body(ReportsBody, **given), form)
    return see_other("/member#reports")
