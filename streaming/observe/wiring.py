"""A service with its panel, its metrics and, if one is configured, its HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from schemas.errors import BackfillError
from schemas.settings.config import ServiceConfig
from state.small_files import SentCount, keep_counts, kept_counts
from state.storage import Storage
from streaming.observe.metrics import Metrics
from streaming.observe.models import SourceStatus, Status
from streaming.observe.state_size import StateSize
from streaming.observe.status_cache import StatusCache
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.runtime.timing import repeated
from streaming.service.service import Service
from streaming.sink.kinds import Sinks, SinkSetup

_COUNTS_KEPT_S = 10.0

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
    config = service.config
    metrics, cache = Metrics(), _cache_of(service, can_steer=token is not None)
    service.observers += (_Observed(cache, metrics),)
    on_status(cache.status)
    with _keeping_counts(cache, Storage(config.state)), _page(service, cache, metrics, token) as address:
        yield address


@contextmanager
def _keeping_counts(cache: StatusCache, storage: Storage) -> Iterator[None]:
    """Keep the records sent by job in the state, every few seconds where they change, and at the end."""
    kept = dict[str, SentCount]()

    def keep() -> bool:
        nonlocal kept
        if (counts := cache.counts()) != kept:
            with suppress(OSError):  # of a storage that is away for a moment, or full
                keep_counts(storage, counts)
                kept = counts
        return True

    try:
        with repeated(keep, _COUNTS_KEPT_S, name="counts"):
            yield
    finally:
        keep()  # behind the last of the repeated calls, whose counts may be older


@contextmanager
def _page(service: Service, cache: StatusCache, metrics: Metrics, token: str | None) -> Iterator[str | None]:
    config, http = service.config, service.config.http
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
    app = build(cache, metrics, gateway, door, http.names)
    with served(app, http) as address:
        log.info("page", address=address)
        yield address


def _cache_of(service: Service, *, can_steer: bool) -> StatusCache:
    config, storage = service.config, Storage(service.config.state)
    return StatusCache(
        config.upstream,
        config.table.name,
        service.owner,
        config.table.vnode_count if config.table.has_key else 0,
        service.vitals,
        source_of(config),
        can_steer=can_steer,
        by_partition=config.table.by_partition,
        columns=lambda: service.config.table.columns,
        newest=lambda: service.barriers.newest() if service.barriers else [],
        disk=StateSize(storage, lambda: service.vitals.rows_folder).look,
        kept_counts=lambda: kept_counts(storage),
    )


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
        moved_at=None,
    )
