"""A table whose configuration leaves its columns out: those of its state, else those of the newest schema upstream.

It takes further columns by itself from then on, unless `on_new_column` says something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import Code, ConfigError
from schemas.kinds.table_changes import altered
from schemas.settings import config
from schemas.settings.config import ServiceConfig, check
from schemas.table import declare
from state.journal import PATH as JOURNAL
from state.journal import Journal
from state.storage import Storage

_WITH_SCHEMAS = ("upsert", "debezium")
"""Formats of tables with a key whose records may have a schema."""


def load(path: Path) -> ServiceConfig:
    """Read and check a configuration, as `schemas.settings.config.load`, also without `columns`.

    Raises: ConfigError, as there; for columns that are left out EnvironmentProblem of broker and registry.
    """
    return config.load(path, _completed)


def _completed(declared: Mapping[Any, Any], path: Path) -> Mapping[Any, Any]:
    """The declaration with columns, if it leaves them out and they can be known; else as it is, with its error."""
    table, upstream = declared.get("table"), declared.get("upstream")
    if not isinstance(table, Mapping) or "columns" in table or not isinstance(table.get("primary_key"), list):
        return declared
    if not isinstance(upstream, Mapping) or upstream.get("format") not in _WITH_SCHEMAS:
        return declared
    key = {name: "string" for name in table["primary_key"] if isinstance(name, str)}
    whole = {**declared, "upstream": {"on_new_column": "add", **upstream}}
    alone = check({**whole, "table": {**table, "columns": key}, "jobs": []}, path=path)
    return {**whole, "table": {**table, "columns": _of_state(alone) or _of_schemas(alone)}}


def _of_state(alone: ServiceConfig) -> dict[str, Any] | None:
    storage = Storage(str(alone.state))
    if not storage.exists(JOURNAL, "_delta_log"):
        return None
    entry = Journal(storage, alone.table).current
    return None if entry is None else dict(json.loads(entry.table)["columns"])


def _of_schemas(alone: ServiceConfig) -> dict[str, Any]:
    """The columns of the newest schema: of the key without a fill, all others with that of their first schema."""
    # Clients take half a second to import, which a table with columns does not need.
    from streaming.kafka.clients import KafkaSettings
    from streaming.service.columns import NewColumns

    found = NewColumns(alone, KafkaSettings.from_config(alone.kafka))
    newest = found.newest()
    if newest is None:
        raise ConfigError(
            Code.TABLE_INVALID,
            where="table",
            found="no 'columns', and no record or registry that has a schema of them",
            expected="columns, or a schema",
            next_step=f"name the columns, as `backfill inspect {alone.upstream}` writes them",
        )
    key = dict(found.key_kinds(*newest))
    table = declare({**alone.table.to_dict(), "columns": {**alone.table.to_dict()["columns"], **key}})
    for change in found.further(*newest):
        table = altered(table, [change])
    return dict(table.to_dict()["columns"])
