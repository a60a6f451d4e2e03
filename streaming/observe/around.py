"""A service with everything that shows it: panel, metrics, and if it is configured the HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from schemas.errors import BackfillError
from streaming.observe.metrics import Metrics
from streaming.observe.panel import Panel
from streaming.service.report import BatchReport
from streaming.service.service import Service, owner

log = structlog.get_logger()


@contextmanager
def observed(service: Service, token: str | None) -> Iterator[str | None]:
    """Have a service observed while the block runs. Enter it before `service.run`; `token` allows changes.

    Gives the address of the page, None without one.

    Raises: EnvironmentProblem(ADDRESS_UNUSABLE).
    """
    config, http = service.config, service.config.http
    metrics = Metrics()
    panel = Panel(
        config.upstream, config.table.name, owner(), config.table.vnode_count, can_steer=token is not None
    )
    panel.newest = lambda: service.aligner.newest() if service.aligner else []
    told = service.on_batch

    def on_batch(report: BatchReport) -> None:
        panel.note(report)
        metrics.note(report)
        told(report)

    def on_trouble(problem: BackfillError) -> None:
        panel.is_degraded(f"{problem.code}: {problem.found}")
        metrics.interrupted(problem.code)

    service.on_batch, service.on_trouble = on_batch, on_trouble
    if http.listen is None:
        yield None
        return
    # The web framework takes 0.4 s to import, of a start that may have no use for it.
    from streaming.observe.api import build
    from streaming.observe.desk import Desk
    from streaming.observe.guards import Doorkeeper
    from streaming.observe.server import served

    door = Doorkeeper(token, is_local=http.is_local)
    desk = Desk(panel, service.kafka, config.upstream, config.table, config.limits)
    hosts = [http.host, *(("localhost", "127.0.0.1") if http.is_local else ()), *http.hosts]
    with served(build(panel, metrics, desk, config.table, door, hosts), http) as address:
        log.info("page", address=address)
        yield address
