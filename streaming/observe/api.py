"""The HTTP API: what the panel shows, and the control requests that the command line can send too.

    GET    /healthz, /readyz, /metrics            for machines
    GET    /api/v1/status, /history, /events      the whole service, its last hour, and what happened in it
    GET    /api/v1/jobs/{job}/vnodes, /output     the heat map; what the output holds, and who reads it
    POST   /api/v1/jobs/plan                      what a job would read, send and take
    POST   /api/v1/jobs                           create; DELETE /api/v1/jobs/{job} drops
    POST   /api/v1/jobs/{job}/pause, /resume, /throttle
    POST   /api/v1/lanes, /alter                  how many lanes; columns and names that come to the table
    POST   /api/v1/suspended                      how a suspended table is to go on
    POST   /api/v1/initial/pause, /resume, /throttle

A change is checked against the jobs there are, and then put into the control topic: 202 says that it is there. It takes
effect at a barrier, as every control request does, and shows in the status from then on. The pace at which a table is
read from its database is no control request: it changes at once, in this service alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from schemas.errors import BackfillError, Code, ConfigError
from schemas.job import JobDefinition
from schemas.records import Add, Alter, Drop, Lanes, Pause, Resume, Throttle
from streaming.observe.gateway import (
    ControlApi,
    JobEstimate,
    Limit,
    NewJob,
    Taken,
    WantedChanges,
    WantedLanes,
    WayOn,
)
from streaming.observe.metrics import Metrics
from streaming.observe.middleware import (
    REFUSALS,
    ApiAuth,
    Bounded,
    NotAllowed,
    foreseen,
    not_allowed,
    not_as_described,
    not_here,
    unknown_job,
)
from streaming.observe.models import EventStatus, OutputStatus, Point, ReadingStatus, Status, VnodeStatus
from streaming.observe.status_cache import StatusCache

if TYPE_CHECKING:
    from streaming.service.initial.reading import DatabaseReading

_STATIC = File(__file__).parent / "page"
_SCRIPTS = ("charts", "page", "sentence", "hour", "facts", "jobs", "new-job", "table")
_PAGE = {"/": "index.html", "/page.css": "page.css", **{f"/{name}.js": f"{name}.js" for name in _SCRIPTS}}
JobName = Annotated[str, Path(description="Name of a job.", max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$")]


def build(
    cache: StatusCache, metrics: Metrics, control: ControlApi, door: ApiAuth, hosts: list[str]
) -> FastAPI:
    """The application. `hosts` are the names that it answers to."""
    app = FastAPI(
        title="arrangement-backfill",
        version=version("arrangement-backfill"),
        summary="Status and steering of one service.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Bounded)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_exception_handler(NotAllowed, not_allowed)
    app.add_exception_handler(BackfillError, foreseen)
    app.add_exception_handler(RequestValidationError, not_as_described)
    app.add_exception_handler(HTTPException, not_here)
    app.include_router(_machine_routes(cache, metrics, door))
    app.include_router(_status_routes(cache, control, door))
    app.include_router(_job_routes(control, door))
    app.include_router(_table_routes(control, door))
    app.include_router(_pace_routes(cache, door))
    _serve_page(app)
    return app


def _machine_routes(cache: StatusCache, metrics: Metrics, door: ApiAuth) -> APIRouter:
    router = APIRouter(tags=["machines"])

    @router.get("/healthz", response_class=PlainTextResponse)
    async def alive() -> str:  # in no thread, of which requests of other kinds may have all
        """The process answers."""
        return "alive\n"

    @router.get(
        "/readyz",
        response_class=PlainTextResponse,
        responses={
            503: {"description": "No barriers come out; the text is why", "content": {"text/plain": {}}}
        },
    )
    async def ready() -> PlainTextResponse:
        """Barriers come out."""
        health = cache.vitals.health()
        return PlainTextResponse(f"{health.condition}\n", 200 if health.ready else 503)

    @router.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(door.require_read)])
    def exposition() -> Response:
        """Prometheus metrics."""
        return Response(metrics.text(cache.status()), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _router(path: str, tag: str, right: Callable[..., None], *refusals: int) -> APIRouter:
    """Routes below a path that need a right, and may be refused with these statuses."""
    responses: dict[int | str, dict[str, Any]] = {number: REFUSALS[number] for number in refusals}
    return APIRouter(prefix=path, tags=[tag], dependencies=[Depends(right)], responses=responses)


def _status_routes(cache: StatusCache, control: ControlApi, door: ApiAuth) -> APIRouter:
    router = _router("/api/v1", "looking", door.require_read, 401, 404, 422)

    @router.get("/status")
    def status() -> Status:
        """The whole service at a glance."""
        return cache.status()

    @router.get("/history")
    def history() -> list[Point]:
        """The last hour, oldest first: a point a second, of ten seconds where it is more than ten minutes ago."""
        return cache.history()

    @router.get("/events")
    def events() -> list[EventStatus]:
        """Events of the last hour, oldest first; before it the last start and end, and the condition then."""
        return cache.events()

    @router.get("/jobs/{job}/vnodes")
    def vnodes(job: JobName) -> list[VnodeStatus]:
        """The progress of each vnode of a job."""
        found = cache.vnodes(job)
        if found is None:
            raise unknown_job(job)
        return found

    @router.get("/jobs/{job}/output", responses={503: REFUSALS[503]})
    def output(job: JobName) -> OutputStatus:
        """Offsets and consumer groups of a job's output, as its broker has them now."""
        return control.output(job)

    return router


def _job_routes(control: ControlApi, door: ApiAuth) -> APIRouter:
    every = (400, 401, 403, 404, 408, 409, 413, 422, 503)
    router = _router("/api/v1/jobs", "steering", door.require_control, *every)

    @router.post("", status_code=202)
    def create(job: NewJob) -> Taken:
        """A new job: the whole table, then every change, into a topic of its own."""
        return Taken(wanted=control.send(Add(JobDefinition.declare(job.declared(), control.table).to_json())))

    @router.post("/plan")
    def plan(job: NewJob) -> JobEstimate:
        """Estimate what it would read, send and take; nothing is started or changed."""
        return control.plan(JobDefinition.declare(job.declared(), control.table))

    @router.delete("/{job}", status_code=202)
    def drop(job: JobName) -> Taken:
        """End a job; its topic stays."""
        return Taken(wanted=control.send(Drop(job)))

    @router.post("/{job}/pause", status_code=202)
    def pause(job: JobName) -> Taken:
        """Halt its backfill; live changes go on."""
        return Taken(wanted=control.send(Pause(job)))

    @router.post("/{job}/resume", status_code=202)
    def resume(job: JobName) -> Taken:
        """Go on with its backfill."""
        return Taken(wanted=control.send(Resume(job)))

    @router.post("/{job}/throttle", status_code=202)
    def throttle(job: JobName, limit: Limit) -> Taken:
        """Bound the snapshot rows per second that it reads."""
        return Taken(wanted=control.send(Throttle(job, limit.rate_limit)))

    return router


def _table_routes(control: ControlApi, door: ApiAuth) -> APIRouter:
    router = _router("/api/v1", "steering", door.require_control, 400, 401, 403, 409, 422, 503)

    @router.post("/lanes", status_code=202)
    def lanes(wanted: WantedLanes) -> Taken:
        """Change the number of lanes, while jobs go on; it stays so through restarts."""
        return Taken(wanted=control.send(Lanes(wanted.lanes)))

    @router.post("/alter", status_code=202)
    def alter(wanted: WantedChanges) -> Taken:
        """Add columns, and names that records have for them, or ignore fields."""
        return Taken(wanted=control.send(Alter(wanted.text())))

    @router.post("/suspended", status_code=202, responses={404: REFUSALS[404]})
    def lead_on(way: WayOn) -> Taken:
        """Try again, without the records or the job that are named."""
        return Taken(wanted=control.lead_on(way))

    return router


def _pace_routes(cache: StatusCache, door: ApiAuth) -> APIRouter:
    router = _router("/api/v1/initial", "steering", door.require_control, 400, 401, 403, 409, 422)

    def paced(change: Callable[[DatabaseReading], None]) -> ReadingStatus:
        reads = cache.vitals.reads
        if reads is None or not reads.is_on:
            raise ConfigError(Code.INITIAL_NOT_READ, found="no table that is read from its database")
        change(reads)
        return ReadingStatus.model_validate(reads.status())

    @router.post("/pause")
    def pause() -> ReadingStatus:
        """Begin no further chunk of the table; changes go on."""
        return paced(lambda reads: reads.pause(True))

    @router.post("/resume")
    def resume() -> ReadingStatus:
        """Go on with the table."""
        return paced(lambda reads: reads.pause(False))

    @router.post("/throttle")
    def throttle(limit: Limit) -> ReadingStatus:
        """Bound the rows per second that are read of the table."""
        return paced(lambda reads: reads.throttle(limit.rate_limit))

    return router


def _serve_page(app: FastAPI) -> None:
    def file(name: str) -> Callable[[], FileResponse]:
        return lambda: FileResponse(_STATIC / name)

    for route, name in _PAGE.items():
        app.add_api_route(route, file(name), include_in_schema=False, methods=["GET"])
