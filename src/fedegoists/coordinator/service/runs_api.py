"""Runs, as a manager starts and follows them."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.domain import consortia
from fedegoists.coordinator.runs import run_records as records
from fedegoists.coordinator.service.identity import AManager, TheService
from fedegoists.coordinator.service.responses import REPORT_HEADERS
from fedegoists.coordinator.service.schemas import Number, RunView, RunWish
from fedegoists.coordinator.service.state import Service

__all__ = ["router"]

router = APIRouter(prefix="/api/consortia/{consortium_id}/runs", tags=["runs"])

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_OF_A_STREAM = 900.0
SECONDS_OF_SILENCE = 15.0


@router.post("", status_code=201)
def start_run(
    consortium_id: Number, body: RunWish, service: TheService, asker: AManager
) -> RunView:
    """Start a run: to learn who benefits whom, or to train by the latest decision."""
    run = service.queue.ask(asker.actor, consortium_id, body.kind, body.engine, body.plan)
    return RunView.of(run)


@router.get("")
def list_runs(consortium_id: Number, service: TheService, _: AManager) -> list[RunView]:
    """List all runs, the latest first."""
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        return [RunView.of(run) for run in records.runs_of(session, found)]


def _run(service: Service, consortium_id: int, number: int) -> RunView:
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        return RunView.of(records.run_numbered(session, found, number))


@router.get("/{number}")
def get_run(consortium_id: Number, number: Number, service: TheService, _: AManager) -> RunView:
    """Show how far a run has come."""
    return _run(service, consortium_id, number)


@router.post("/{number}/cancel")
def cancel_run(
    consortium_id: Number, number: Number, service: TheService, asker: AManager
) -> RunView:
    """Have a run stop."""
    with service.store.write() as session:
        found = consortia.consortium_with(session, consortium_id)
        run = records.run_numbered(session, found, number)
        records.cancel(service.store, session, asker.actor, run)
    return RunView.of(run)


@router.get("/{number}/events", response_class=StreamingResponse)
async def follow_run(
    consortium_id: Number, number: Number, service: TheService, _: AManager
) -> StreamingResponse:
    """Follow a run: server-sent events, each a run as JSON, until it ends."""
    await run_in_threadpool(_run, service, consortium_id, number)  # an unknown one is an error
    return _Stream(service, _events(service, consortium_id, number))


class _Stream(StreamingResponse):
    """A stream of events that counts as open exactly as long as it is."""

    def __init__(self, service: Service, content: AsyncIterator[str]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        # Nothing else happens between the look and the count, so no more than the limit get in.
        if service.streams >= service.limits.streams:
            full = JSONResponse({"detail": "too many are following runs; try again later"}, 503)
            await full(scope, receive, send)
            return
        service.streams += 1
        service.metrics.streams.set(service.streams)
        try:
            await super().__call__(scope, receive, send)
        finally:
            service.streams -= 1
            service.metrics.streams.set(service.streams)


async def _events(service: Service, consortium_id: int, number: int) -> AsyncIterator[str]:
    shown, silent, passed = "", 0.0, 0.0
    while passed < SECONDS_OF_A_STREAM and not service.stopping.is_set():
        run = await run_in_threadpool(_run, service, consortium_id, number)
        text = run.model_dump_json()
        if text != shown:
            shown, silent = text, 0.0
            yield f"data: {text}\n\n"
        elif silent >= SECONDS_OF_SILENCE:
            silent = 0.0
            yield ": still here\n\n"  # so that what is in between keeps the connection
        if run.state in records.ENDED:
            yield f"event: end\ndata: {json.dumps(run.state)}\n\n"
            return
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        silent += SECONDS_BETWEEN_LOOKS
        passed += SECONDS_BETWEEN_LOOKS


@router.get("/{number}/report", response_class=Response)
def get_report(
    consortium_id: Number, number: Number, service: TheService, _: AManager
) -> FileResponse:
    """Return the manager's report of a run. It names competitors: not for members."""
    with service.store.read() as session:
        found = consortia.consortium_with(session, consortium_id)
        run = records.run_numbered(session, found, number)
        folder, name = records.run_folder(service.data, run)
    path = folder / name / "report.html"
    if run.state != "finished" or not path.is_file():
        raise NotFoundError("this run has left no report")
    return FileResponse(path, media_type="text/html", headers=REPORT_HEADERS)
