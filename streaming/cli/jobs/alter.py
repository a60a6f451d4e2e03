"""`backfill alter`: another version of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer

from schemas.errors import Code, ConfigError
from schemas.kinds.columns import declared_columns
from schemas.kinds.table_changes import (
    AddColumn,
    IgnoreField,
    RenameField,
    RetireColumn,
    TableChange,
    WidenColumn,
    changes_text,
)
from schemas.records import Alter
from schemas.settings.documents import mapping_in
from schemas.types import TypeName
from streaming.cli.configuration import ConfigOption, usage
from streaming.cli.jobs.commands import lead_on, send_mutation
from streaming.cli.jobs.options import RequestOptions
from streaming.cli.jobs.served import Served
from streaming.source.barriers.injecting.control_requests import AlterAndTryAgain

_AS_JSON = (TypeName.BOOLEAN, TypeName.INT, TypeName.BIGINT, TypeName.FLOAT, TypeName.DOUBLE)
"""Types whose values are no text in a declaration."""

AcceptMissing = Annotated[
    bool,
    typer.Option(
        "--accept-missing",
        help="With --add and --rename: earlier records may have had the field, which was ignored; rows have the "
        "column's fill until a record comes.",
    ),
]


def command(
    config: ConfigOption = None,
    *,
    add: Annotated[
        list[str] | None,
        typer.Option(
            help="A column behind the others, as below `columns` of a configuration: 'c: int'. May be repeated."
        ),
    ] = None,
    fill: Annotated[
        str | None,
        typer.Option(
            help="With one --add: the column's value in rows whose records lack it, if not null, as its text alone."
        ),
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option(help="A wider type for a column: 'c: bigint'. May be repeated."),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(help="A column that the upstream's table has no more; it stays. May be repeated."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            help="Records have a column under a new name: COLUMN=NEW. It keeps its own. May be repeated."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Records have a field that is to be no column. May be repeated.")
    ] = None,
    accept_missing: AcceptMissing = False,
    request: RequestOptions,
) -> None:
    """Add a column to the table, widen, retire or rename one in records, or ignore a field of theirs.

    A table that waits at a record with a new field goes on with it in the same batch; else it holds from the next
    barrier on. Outputs get the column where their jobs say `new_columns: send`. It stays so through restarts; write it
    into the configuration as well.
    """
    changes = (
        *_added(add or (), fill, accept_missing),
        *_widened(widen or ()),
        *map(RetireColumn, retire or ()),
        *_renamed(rename or (), accept_missing),
        *map(IgnoreField, ignore or ()),
    )
    if not changes:
        raise usage("nothing to alter", "--add, --widen, --retire, --rename or --ignore")
    if accept_missing and not (add or rename):
        raise usage(
            "--accept-missing without --add and --rename", "a column whose earlier values may be missing"
        )
    served = Served.of(config)
    if served.state_reader.suspended_end() is not None:
        lead_on(served, AlterAndTryAgain(changes), request)
        return
    served.check_changes(changes)
    send_mutation(served, Alter(changes_text(changes)), request)


def _added(texts: Sequence[str], fill: str | None, accept_missing: bool) -> Iterator[TableChange]:
    if fill is not None and len(texts) != 1:
        raise usage(f"--fill and {len(texts)} --add", "one --add, or the form 'c: {type: int, fill: 0}'")
    for text in texts:
        declared = mapping_in(text.encode(), Code.USAGE, where="--add", expected="a column as in 'c: int'")
        if fill is not None:
            declared = {name: _with_fill(each, fill) for name, each in declared.items()}
        faults = list[str]()
        columns = declared_columns(declared, faults)
        if faults:
            raise ConfigError(Code.TABLE_INVALID, where="--add", found="; ".join(faults))
        yield from (replace(AddColumn.of(each), accepts_missing=accept_missing) for each in columns)


def _with_fill(declared: object, text: str) -> dict[str, Any]:
    """The declaration with a fill, whose text is taken as it stands: no quotes are needed, and none are taken off."""
    keys = dict(declared) if isinstance(declared, Mapping) else {"type": declared}
    literal: object = text
    if str(keys.get("type")).strip().lower() in _AS_JSON:
        with suppress(ValueError):  # what is no literal of the type is one of the faults
            literal = json.loads(text.lower())
    return {**keys, "fill": literal}


def _widened(texts: Sequence[str]) -> Iterator[TableChange]:
    for text in texts:
        wanted = mapping_in(text.encode(), Code.USAGE, where="--widen", expected="a column as in 'c: bigint'")
        yield from (WidenColumn(name, str(kind)) for name, kind in wanted.items())


def _renamed(texts: Sequence[str], accept_missing: bool) -> Iterator[TableChange]:
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise usage(f"--rename {text!r}", "the column and its new name in records: old=new")
        yield RenameField(old, new, accept_missing)
