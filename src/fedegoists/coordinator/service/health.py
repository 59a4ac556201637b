"""For those who keep the service running: health, metrics; and accepting an invitation."""

from fastapi import APIRouter, HTTPException, Request, Response
from sqlalchemy import func, select

from fedegoists.coordinator.coordinator_errors import NotAllowedError, StoreError
from fedegoists.coordinator.domain.access import accept_invitation
from fedegoists.coordinator.service.identity import AMonitor, TheService, check_origin
from fedegoists.coordinator.service.schemas import AcceptedInvitation, Health, InvitationSecret
from fedegoists.coordinator.store.tables import RunRecord
from fedegoists.coordinator.store.times import BACK_SECONDS

__all__ = ["router"]

router = APIRouter(tags=["operations"])


@router.get("/health", responses={503: {"model": Health}})
def health(service: TheService, response: Response) -> Health:
    """Say whether the service works; for those who watch it."""
    try:
        behind = service.store.seconds_behind()
    except StoreError as error:
        response.status_code = 503
        return Health(status=type(error).__name__)
    if service.queue.lost:
        response.status_code = 503
        return Health(status="runs are not worked on any more; start the coordinator again")
    if behind > BACK_SECONDS:
        return Health(status="the clock is behind the audit log; set it right")
    return Health(status="ok")


@router.get("/metrics", response_class=Response)
def metrics(service: TheService, _: AMonitor) -> Response:
    """Return numbers for Prometheus; for a manager or a monitor."""
    with service.store.read() as session:
        states = session.execute(
            select(RunRecord.state, func.count()).group_by(RunRecord.state)
        ).all()
    for state in ("queued", "running", "waiting", "finished", "failed", "cancelled"):
        service.metrics.runs.labels(state).set(dict(states).get(state, 0))
    service.metrics.clock_behind.set(service.store.seconds_behind())
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


@router.post("/api/invitations/accept", responses={401: {"description": "not a valid invitation"}})
def accept(body: InvitationSecret, request: Request, service: TheService) -> AcceptedInvitation:
    """Exchange an invitation, once, for a token that lasts."""
    check_origin(request)
    try:
        with service.store.write() as session:
            principal, token = accept_invitation(service.store, session, body.invitation)
    except NotAllowedError as error:
        raise HTTPException(401, str(error)) from None
    return AcceptedInvitation(role=principal.role, label=principal.label, token=token)
