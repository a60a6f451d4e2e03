"""The topic's first records, checked as by a first start: declared columns, and databases under one name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from schemas.errors import BackfillError
from schemas.formats.names.seen import LEAST_ROWS, MOST_NAMED, SeenNames
from schemas.settings.config import ServiceConfig
from state.journal import PATH
from state.storage import Storage
from streaming.cli.doctor.findings import Diagnosis
from streaming.kafka.clients import KafkaSettings
from streaming.registry.book import AskedSchemas
from streaming.registry.client import Registry
from streaming.source.fields.first_rows import check_columns, check_logs

Found = TypeVar("Found")


def looked_at(config: ServiceConfig, settings: KafkaSettings) -> Iterator[Diagnosis]:
    """Nothing where there is a state already, or nothing to check."""
    try:
        if Storage(config.state).exists(PATH, "_delta_log"):
            return
    except BackfillError as error:
        yield Diagnosis.of("columns", error)
        return
    format_ = config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))
    first = settings, config.upstream, format_, config.table
    yield from _finding("columns", lambda: check_columns(*first), _said)
    yield from _finding("logs", lambda: check_logs(*first), _logs_said)


def _finding(
    subject: str, check: Callable[[], Found | None], said: Callable[[Found], str]
) -> Iterator[Diagnosis]:
    try:
        found = check()
    except BackfillError as error:
        yield Diagnosis.of(subject, error)
    else:
        if found is not None:
            yield Diagnosis.ok(subject, said(found))


def _logs_said(count: int) -> str:
    return f"{count:,} in the first records, each of one database by its positions"


def _said(seen: SeenNames) -> str:
    if seen.rows < LEAST_ROWS:
        return "too few rows in the topic to look for them"
    others = seen.undeclared
    more = f", which have {len(others):,} fields that are not declared: " if others else ""
    return f"each is in some of {seen.rows:,} first rows{more}{', '.join(others[:MOST_NAMED])}"
