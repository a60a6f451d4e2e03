"""The HTTP API: what the panel shows, and the control requests that the command line can send too.

    GET    /healthz, /readyz, /metrics            for machines
    GET    /api/v1/status, /history               the whole service, and its last hour
    GET    /api/v1/jobs/{job}/vnodes              the heat map
    POST   /api/v1/jobs/plan                      what a job would read, send and take
    POST   /api/v1/jobs                           create; DELETE /api/v1/jobs/{job} drops
    POST   /api/v1/jobs/{job}/pause, /resume, /throttle
    POST   /api/v1/initial/pause, /resume, /throttle

A change is checked against the jobs there are, and then put into the control topic: 202 says that it is there. It takes
effect at a barrier, as every control request does, and shows in the status from then on. The pace at which a table is
read from its database is no control request: it changes at once, in this service alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from schemas.errors import BackfillError, Code, ConfigError
from schemas.job import JobDefinition
from schemas.records import Add, Drop, Mutation, Pause, Resume, Throttle
from schemas.table import TableSchema
from streaming.observe.metrics import Metrics
from streaming.observe.middleware import ApiAuth, Bounded, NotAllowed, not_allowed, problem
from streaming.observe.models import JobEstimate, Point, Problem, ReadingStatus, Status, Taken, VnodeStatus
from streaming.observe.status_cache import StatusCache

if TYPE_CHECKING:
    from streaming.service.initial.reading import DatabaseReading

_STATIC = File(__file__).parent / "page"
_PAGE = {
    f"/{'' if name == 'index.html' else name}": name
    for name in ("index.html", "page.js", "facts.js", "jobs.js", "charts.js", "new-job.js", "page.css")
}
_HTTP_STATUS = {
    Code.JOB_UNKNOWN: 404,
    Code.JOB_EXISTS: 409,
    Code.INITIAL_NOT_READ: 409,
    Code.OUTPUT_TOPIC_MISMATCH: 409,
    Code.OUTPUT_LOSES_RECORDS: 409,
    Code.SAME_TOPIC: 409,
}
_MOST_FAULTS, _MOST_CHARACTERS = 10, 1_000
_MAX_LIMIT = 10**12
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "No JSON, or another Host", "content": {"text/plain": {}}},
    401: {"model": Problem, "description": "No token"},
    403: {"model": Problem, "description": "No token is configured"},
    404: {"model": Problem, "description": "No such job"},
    408: {"model": Problem, "description": "A body that took too long"},
    409: {"model": Problem, "description": "In the way of another job"},
    413: {"model": Problem, "description": "A body that is too large"},
    422: {"model": Problem, "description": "Not a job of this table"},
    503: {"model": Problem, "description": "Kafka can't be reached"},
}

Requests = Callable[[Mutation], str]
"""Checks a mutation, sends it and returns the request's id. Raises: BackfillError."""
Plans = Callable[[JobDefinition], JobEstimate]
"""Estimates a job. Raises: BackfillError for one that can't be created."""

JobName = Annotated[str, Path(description="Name of a job.", max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$")]


def _whole(value: object) -> object:
    """JSON knows one kind of number: 10.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Rows = Annotated[int, Field(ge=0, le=_MAX_LIMIT), BeforeValidator(_whole)]


class NewJob(BaseModel):
    """A job, as below `jobs` in a configuration."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=63)
    output: str = Field(max_length=249)
    columns: list[str] | None = None
    filter: str | None = Field(None, max_length=16_384)
    output_partitions: Count | None = None
    rate_limit: Rows | None = None
    latency_budget: str | None = None
    replication_factor: Count | None = None
    topic_config: dict[str, str] | None = None
    allow_retention: bool | None = None
    format: str | None = Field(None, max_length=63)
    encoding: str | None = Field(None, max_length=63)
    tombstones: bool | None = None
    barrier_topic: str | None = Field(None, max_length=249)
    read: str | None = Field(None, max_length=63)


class Limit(BaseModel):
    """Snapshot rows per second; null takes the limit away."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rate_limit: Rows | None


def build(
    cache: StatusCache,
    metrics: Metrics,
    requests: Requests,
    table: TableSchema,
    door: ApiAuth,
    hosts: list[str],
    *,
    plans: Plans,
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
    app.add_exception_handler(BackfillError, _problem)
    app.add_exception_handler(RequestValidationError, _not_as_described)
    app.add_exception_handler(HTTPException, _not_here)
    app.include_router(_machine_routes(cache, metrics, door))
    app.include_router(_status_routes(cache, door))
    app.include_router(_job_routes(requests, plans, table, door))
    app.include_router(_pace_routes(cache, door))
    _serve_page(app)
    return app


def _problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, BackfillError)
    status = _HTTP_STATUS.get(error.code) or {7: 503}.get(error.exit_status, 422)
    return problem(
        status, code=error.code, found=error.found, expected=error.expected, next_step=error.next_step
    )


def _not_as_described(_: Request, error: Exception) -> JSONResponse:
    """Names what is wrong and where, and quotes no value."""
    assert isinstance(error, RequestValidationError)
    found = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['type']}"
        for fault in error.errors()[:_MOST_FAULTS]
    )
    return _usage(422, found[:_MOST_CHARACTERS])


def _not_here(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _usage(error.status_code, str(error.detail), error.headers)


def _usage(status: int, found: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return problem(
        status,
        found=found,
        expected="a request as the description says",
        next_step="see /api/openapi.json",
        headers=headers,
    )


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


def _status_routes(cache: StatusCache, door: ApiAuth) -> APIRouter:
    refusals: dict[int | str, dict[str, Any]] = {number: _REFUSALS[number] for number in (401, 404, 422)}
    router = APIRouter(
        prefix="/api/v1", tags=["looking"], dependencies=[Depends(door.require_read)], responses=refusals
    )

    @router.get("/status")
    def status() -> Status:
        """The whole service at a glance."""
        return cache.status()

    @router.get("/history")
    def history() -> list[Point]:
        """The last hour, oldest first: a point a second, of ten seconds where it is more than ten minutes ago."""
        return cache.history()

    @router.get("/jobs/{job}/vnodes")
    def vnodes(job: JobName) -> list[VnodeStatus]:
        """The progress of each vnode of a job."""
        found = cache.vnodes(job)
        if found is None:
            raise unknown_job(job)
        return found

    return router


def unknown_job(job: str) -> ConfigError:
    """The error for a name that no job has."""
    return ConfigError(Code.JOB_UNKNOWN, found=f"no job {job}")


def _job_routes(requests: Requests, plans: Plans, table: TableSchema, door: ApiAuth) -> APIRouter:
    router = APIRouter(
        prefix="/api/v1/jobs",
        tags=["steering"],
        dependencies=[Depends(door.require_control)],
        responses=_REFUSALS,
        default_response_class=JSONResponse,
    )

    @router.post("", status_code=202)
    def create(job: NewJob) -> Taken:
        """A new job: the whole table, then every change, into a topic of its own."""
        definition = JobDefinition.declare(job.model_dump(exclude_none=True), table)
        return Taken(wanted=requests(Add(definition.to_json())))

    @router.post("/plan")
    def plan(job: NewJob) -> JobEstimate:
        """Estimate what it would read, send and take; nothing is started or changed."""
        return plans(JobDefinition.declare(job.model_dump(exclude_none=True), table))

    @router.delete("/{job}", status_code=202)
    def drop(job: JobName) -> Taken:
        """End a job; its topic stays."""
        return Taken(wanted=requests(Drop(job)))

    @router.post("/{job}/pause", status_code=202)
    def pause(job: JobName) -> Taken:
        """Halt its backfill; live changes go on."""
        return Taken(wanted=requests(Pause(job)))

    @router.post("/{job}/resume", status_code=202)
    def resume(job: JobName) -> Taken:
        """Go on with its backfill."""
        return Taken(wanted=requests(Resume(job)))

    @router.post("/{job}/throttle", status_code=202)
    def throttle(job: JobName, limit: Limit) -> Taken:
        """Bound the snapshot rows per second that it reads."""
        return Taken(wanted=requests(Throttle(job, limit.rate_limit)))

    return router


def _pace_routes(cache: StatusCache, door: ApiAuth) -> APIRouter:
    router = APIRouter(
        prefix="/api/v1/initial",
        tags=["steering"],
        dependencies=[Depends(door.require_control)],
        responses={number: _REFUSALS[number] for number in (400, 401, 403, 409, 422)},
    )

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
