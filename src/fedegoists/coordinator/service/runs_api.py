"""The manager's API for runs: starting, following and cancelling them."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from fedegoists.coordinator.coordinator_errors import NotFoundError
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunOrder
from fedegoists.coordinator.service.api_schemas import Number, RunView
from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.service.rendering import report_response
from fedegoists.coordinator.service.request_identity import AManager
from fedegoists.coordinator.store.audit_check import ENDED
from fedegoists.coordinator.store.database_tables import RunRow

router = APIRouter(prefix="/api/consortia/{consortium_id}/runs", tags=["runs"])

SECONDS_BETWEEN_READS = 0.5
SECONDS_OF_A_STREAM = 900.0
SECONDS_OF_SILENCE = 15.0


@router.post("", status_code=201)
def start_run(consortium_id: Number, body: RunOrder, caller: AManager) -> RunView:
    """Start a run: to learn benefits, or to train by the latest decision."""
    return RunView.model_validate(caller.service.queue.enqueue(caller.actor, consortium_id, body))


@router.get("")
def list_runs(consortium_id: Number, caller: AManager) -> list[RunView]:
    """List all runs, the latest first."""
    with caller.service.reading(consortium_id) as (session, found):
        return [RunView.model_validate(run) for run in run_records.runs_of(session, found)]


def _run(service: Service, consortium_id: int, number: int) -> RunRow:
    with service.reading(consortium_id) as (session, found):
        return session.numbered(RunRow, found, number)


@router.get("/{number}")
def get_run(consortium_id: Number, number: Number, caller: AManager) -> RunView:
    """Show the progress of a run."""
    return RunView.model_validate(_run(caller.service, consortium_id, number))


@router.post("/{number}/cancel")
def cancel_run(consortium_id: Number, number: Number, caller: AManager) -> RunView:
    """Cancel a run."""
    with caller.service.writing(consortium_id) as (session, found):
        run = session.numbered(RunRow, found, number)
        run_records.cancel(session, caller.actor, run)
    return RunView.model_validate(run)


@router.get("/{number}/events", response_class=StreamingResponse)
async def follow_run(consortium_id: Number, number: Number, caller: AManager) -> StreamingResponse:
    """Follow a run: server-sent events, each a run as JSON, until it ends."""
    service = caller.service
    await run_in_threadpool(_run, service, consortium_id, number)  # an unknown one is an error
    return _Stream(service, _events(service, consortium_id, number))


class _Stream(StreamingResponse):
    """A stream of events that counts towards the limit while it is open."""

    def __init__(self, service: Service, content: AsyncIterator[str]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        # No other code runs between the test and the count, so the limit holds.
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
        text = RunView.model_validate(run).model_dump_json()
        if text != shown:
            shown, silent = text, 0.0
            yield f"data: {text}\n\n"
        elif silent >= SECONDS_OF_SILENCE:
            silent = 0.0
            yield ": still here\n\n"  # so that proxies keep the connection
        if run.state in ENDED:
            yield f"event: end\ndata: {json.dumps(run.state)}\n\n"
            return
        await asyncio.sleep(SECONDS_BETWEEN_READS)
        silent += SECONDS_BETWEEN_READS
        passed += SECONDS_BETWEEN_READS


@router.get("/{number}/report", response_class=Response)
def get_report(consortium_id: Number, number: Number, caller: AManager) -> Response:
    """Return the manager's report of a run. It names competitors: not for members."""
    run = _run(caller.service, consortium_id, number)
    folder, name = run_records.run_folder(caller.service.data, run)
    path = folder / name / "report.html"
    if run.state != "finished" or not path.is_file():
        raise NotFoundError("this run has left no report")
    return report_response(path)
