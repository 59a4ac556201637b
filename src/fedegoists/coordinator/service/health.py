"""Health and metrics, for operators; and the exchange of an invitation for a token."""

from fastapi import APIRouter, HTTPException, Request, Response
from sqlalchemy import func, select

from fedegoists.coordinator.coordinator_errors import NotAllowedError, StoreError
from fedegoists.coordinator.domain.accounts import accept_invitation, check_invitation
from fedegoists.coordinator.service.api_schemas import HealthView, InvitationBody, TokenView
from fedegoists.coordinator.service.request_identity import AMonitor, TheService, check_origin
from fedegoists.coordinator.store.database_tables import RunRow
from fedegoists.coordinator.store.moments import BACK_SECONDS

router = APIRouter(tags=["operations"])


@router.get("/health", responses={503: {"model": HealthView}})
def health(service: TheService, response: Response) -> HealthView:
    """Show whether the service works, for monitoring."""
    try:
        behind = service.store.seconds_behind()
    except StoreError as error:
        response.status_code = 503
        return HealthView(status=type(error).__name__)
    if service.queue.lost:
        response.status_code = 503
        return HealthView(status="runs are not worked on any more; start the coordinator again")
    trouble = service.disks.trouble()
    if trouble:
        response.status_code = 503
        return HealthView(status=trouble)
    if behind > BACK_SECONDS:
        return HealthView(status="the clock is behind the audit log; set it right")
    return HealthView(status="ok")


@router.get("/metrics", response_class=Response)
def metrics(service: TheService, _: AMonitor) -> Response:
    """Return metrics for Prometheus, for a manager or a monitor."""
    with service.store.read() as session:
        states = session.execute(select(RunRow.state, func.count()).group_by(RunRow.state)).all()
    for state in ("queued", "running", "waiting", "finished", "failed", "cancelled"):
        service.metrics.runs.labels(state).set(dict(states).get(state, 0))
    service.metrics.clock_behind.set(service.store.seconds_behind())
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


@router.post("/api/invitations/accept", responses={401: {"description": "not a valid invitation"}})
def accept(body: InvitationBody, request: Request, service: TheService) -> TokenView:
    """Exchange an invitation, once, for a token that does not expire."""
    check_origin(request)
    try:
        with service.store.read() as session:  # strangers must not keep others from writing
            check_invitation(session, body.invitation)
        with service.store.write() as session:
            principal, token = accept_invitation(session, body.invitation)
    except NotAllowedError as error:
        raise HTTPException(401, str(error)) from None
    return TokenView(role=principal.role, label=principal.label, token=token)
