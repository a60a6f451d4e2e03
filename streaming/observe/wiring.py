"""A service with its panel, its metrics and, if one is configured, its HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from schemas.errors import BackfillError
from schemas.settings.config import ServiceConfig
from state.storage import Storage
from streaming.observe.metrics import Metrics
from streaming.observe.models import SourceStatus, Status
from streaming.observe.state_size import StateSize
from streaming.observe.status_cache import StatusCache
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.service.service import Service
from streaming.sink.kinds import Sinks, SinkSetup

log = structlog.get_logger()


@dataclass(frozen=True)
class _Observed:
    cache: StatusCache
    metrics: Metrics

    def starts_from(self, state: StateAtBarrier) -> None:
        self.cache.restore(state)

    def batch(self, report: BatchReport) -> None:
        self.metrics.note(report, self.cache.note(report))

    def trouble(self, problem: BackfillError) -> None:
        self.cache.interrupted()
        self.metrics.interrupted(problem.code)


@contextmanager
def observed(
    service: Service,
    token: str | None,
    *,
    on_status: Callable[[Callable[[], Status]], None] = lambda look: None,
) -> Iterator[str | None]:
    """Connect a service to its panel, metrics and page while the block runs. `token` allows changes.

    Enter it before `service.run`. Gives the address of the page, None without one. `on_status` is called once, with the
    function that gives the status as of each call.

    Raises: EnvironmentProblem(ADDRESS_UNUSABLE).
    """
    config, http = service.config, service.config.http
    metrics, cache = Metrics(), _cache_of(service, can_steer=token is not None)
    service.observers += (_Observed(cache, metrics),)
    on_status(cache.status)
    if http.listen is None:
        yield None
        return
    # The web framework takes 0.4 s to import, which a start without a page should not pay.
    from streaming.observe.api import build
    from streaming.observe.gateway import ControlApi
    from streaming.observe.middleware import ApiAuth
    from streaming.observe.server import served

    door = ApiAuth(token, is_local=http.is_local)
    setup = SinkSetup.from_config(config, service.kafka, parks=False)
    gateway = ControlApi(
        cache=cache,
        storage=Storage(config.state),
        kafka=service.kafka,
        config=lambda: service.config,
        sink_of=Sinks(setup),
    )
    hosts = [http.host, *(("localhost", "127.0.0.1") if http.is_local else ()), *http.hosts]
    app = build(
        cache,
        metrics,
        gateway,
        lambda: service.config.table,
        door,
        hosts,
        plans=gateway.plan,
        ways_on=gateway.lead_on,
        outputs=gateway.output,
    )
    with served(app, http) as address:
        log.info("page", address=address)
        yield address


def _cache_of(service: Service, *, can_steer: bool) -> StatusCache:
    config = service.config
    cache = StatusCache(
        config.upstream,
        config.table.name,
        service.owner,
        config.table.vnode_count if config.table.has_key else 0,
        service.vitals,
        source_of(config),
        can_steer=can_steer,
        by_partition=config.table.by_partition,
        columns=lambda: service.config.table.column_names,
    )
    cache.newest = lambda: service.barriers.newest() if service.barriers else []
    cache.disk = StateSize(Storage(config.state), lambda: service.vitals.rows_folder).look
    return cache


def source_of(config: ServiceConfig) -> SourceStatus:
    """The source of a service as configured, without an address or a secret in it."""
    start = None
    if config.initial is not None:
        start = f"version {config.initial.version} of a Delta table"
    if config.initial_postgres is not None:
        start = f"table {config.initial_postgres.table} of PostgreSQL, slot {config.initial_postgres.slot}"
    return SourceStatus(
        form=config.upstream_format.form,
        barriers=config.barriers.kind,
        barrier_interval_s=config.barrier_interval_ms / 1_000,
        barrier_topic=config.topics.barriers,
        control_topic=config.topics.control,
        start=start,
    )
