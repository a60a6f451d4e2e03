"""The declared columns, looked for in the topic's first records as a first start does it."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.errors import BackfillError
from schemas.formats.names.seen import LEAST_ROWS, MOST_NAMED, SeenNames
from schemas.settings.config import ServiceConfig
from state.journal import PATH
from state.storage import Storage
from streaming.cli.doctor.findings import Finding
from streaming.kafka.clients import KafkaSettings
from streaming.registry.book import AskedSchemas
from streaming.registry.client import Registry
from streaming.source.first_rows import check_columns


def looked_at(config: ServiceConfig, settings: KafkaSettings) -> Iterator[Finding]:
    """Nothing where there is a state already, or records have all columns anyway."""
    try:
        if Storage(config.state).exists(PATH, "_delta_log"):
            return
        format_ = config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))
        seen = check_columns(settings, config.upstream, format_, config.table)
    except BackfillError as error:
        yield Finding.of("columns", error)
        return
    if seen is not None:
        yield Finding.ok("columns", _said(seen))


def _said(seen: SeenNames) -> str:
    if seen.rows < LEAST_ROWS:
        return "too few rows in the topic to look for them"
    others = seen.undeclared
    more = f", which have {len(others):,} fields that are not declared: " if others else ""
    return f"each is in some of {seen.rows:,} first rows{more}{', '.join(others[:MOST_NAMED])}"
