"""The audit log, for a manager: to read, to check and to take away."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select

from fedegoists.coordinator.service.identity import AManager, TheService
from fedegoists.coordinator.service.rendering import page, signed_in
from fedegoists.coordinator.service.schemas import LogEntry, LogVerdict
from fedegoists.coordinator.service.state import Service, service_of
from fedegoists.coordinator.store.audit_log import entries, entry_line
from fedegoists.coordinator.store.replay import check_log
from fedegoists.coordinator.store.tables import AuditEntry

__all__ = ["pages", "router"]

router = APIRouter(prefix="/api/audit-log", tags=["manager"])
pages = APIRouter(include_in_schema=False)

ENTRIES_A_PAGE = 200
MOST = 2**31 - 1

Head = Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$")]


@router.get("")
def audit_log(service: TheService, _: AManager, after: int = 0) -> list[LogEntry]:
    """Show the audit log, some entries at a time."""
    with service.store.read() as session:
        found = session.scalars(
            select(AuditEntry)
            .where(AuditEntry.id > min(max(after, 0), MOST))
            .order_by(AuditEntry.id)
            .limit(ENTRIES_A_PAGE)
        ).all()
    return [LogEntry.model_validate(entry) for entry in found]


@router.get("/check")
def check_audit_log(service: TheService, _: AManager, head: Head = None) -> LogVerdict:
    """Check that nothing was altered: the chain, and that the tables say what the log says.

    `head` is a hash noted earlier, which must still be that of an entry.
    """
    return _checked(service, head)


def _checked(service: Service, head: str | None) -> LogVerdict:
    with service.store.read() as session:
        found = check_log(session, head)
    return LogVerdict(
        ok=found.ok, entries=found.count, head=found.head, problems=list(found.problems)
    )


@router.get("/file", response_class=Response)
def download_audit_log(service: TheService, _: AManager) -> StreamingResponse:
    """Return all entries, one JSON object a line, as `fedegoists audit-log show` prints them."""

    def lines() -> Iterator[str]:
        with service.store.read() as session:
            for entry in entries(session):
                yield entry_line(entry) + "\n"

    headers = {"Content-Disposition": 'attachment; filename="audit-log.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


@pages.get("/audit-log")
def audit_log_page(
    request: Request,
    before: Annotated[int, Query(ge=1, le=MOST)] = MOST,
    check: bool = False,
    head: Annotated[str, Query(pattern=r"^([0-9a-f]{64})?$")] = "",
) -> Response:
    """Show the latest entries, and on demand whether anything was altered."""
    asker = signed_in(request, role="manager")
    service = service_of(request)
    with service.store.read() as session:
        found = session.scalars(
            select(AuditEntry)
            .where(AuditEntry.id < before)
            .order_by(AuditEntry.id.desc())
            .limit(ENTRIES_A_PAGE)
        ).all()
        count = session.scalar(select(func.max(AuditEntry.id))) or 0
    return page(
        request,
        "audit_log.html.j2",
        asker,
        entries=found,
        count=count,
        head=head,
        verdict=_checked(service, head or None) if check else None,
    )
