"""The table that an upstream's changes begin from, for a command that folds them itself."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from schemas.codec.results import row_type
from schemas.errors import Code, StateError
from schemas.settings.config import ServiceConfig
from schemas.table import TableSchema
from state.columns import with_fills
from state.initial.start import Start, TopicStart
from state.initial.table import SourceTable
from state.storage import Storage
from streaming.cli.configuration import usage
from streaming.control.state_view import StateReader
from streaming.verify.fold import InitialTable

_ROWS_AT_ONCE = 1_000_000


def start_in(config: ServiceConfig) -> Start | TopicStart | None:
    """The start of the table of a configuration; the state's where there is one, as in the service.

    Rows without identity start at the topic's first record unless the state says otherwise.

    Raises: ConfigError(USAGE) for a timestamp where the state is not at hand, which knows its offsets.
    """
    if config.initial is None and config.table.has_key:
        return None
    try:
        view = StateReader(Storage(str(config.state)), config.table).read()
        known = view.start or view.earliest
    except StateError as error:
        if error.code is not Code.STATE_PATH_INVALID:
            raise
        known = None
    if known is not None or config.initial is None:
        return known
    if config.initial.offsets is None:
        raise usage(
            "initial.delta.timestamp without the state that knows its offsets", "initial.delta.offsets"
        )
    return Start(config.initial, config.initial.offsets, None)


def initial_table(start: Start | TopicStart, table: TableSchema) -> InitialTable:
    """Its rows, read as they are asked for; columns that came later have their fill.

    Raises: ConfigError, as `SourceTable` and its `check`.
    """
    if isinstance(start, TopicStart):
        return InitialTable(start.offsets, ())
    source = SourceTable(start.declared.uri, start.declared.version)
    stored, schema = source.columns_of(table), row_type(table.columns)
    source.check(stored)

    def rows() -> Iterator[pa.Table]:
        for part in source.parts(_ROWS_AT_ONCE):
            for found in part.read(stored):
                for field in (field for field in schema if field.name not in stored.by_name):
                    found = found.append_column(field, pa.nulls(found.num_rows, field.type))
                yield with_fills(found, stored.column_names, table.fills)

    return InitialTable(start.offsets, rows())
