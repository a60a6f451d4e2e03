"""The form of a topic's records, as its configuration declares it, and what one of them says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, Self

from pydantic import BaseModel

from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import Change, Row
from schemas.table import Column, TableSchema
from streaming.reading.records.logs import PlaceInLog
from streaming.reading.values.writer_schemas import SchemaLookup


class RowImages(Enum):
    """Which rows a change comes with."""

    FULL = "full"
    """INSERT has `after`, DELETE has `before`, UPDATE has both."""
    NONE = "after only"
    """INSERT has the row as it is now, whether it was there or not; `before` of a DELETE has the key columns alone."""
    NO_IDENTITY = "rows"
    """Rows of a table without a primary key, each an INSERT."""


@dataclass(frozen=True)
class RecordForm:
    """The settings of one topic by which its records are read; those that its format does not have are left alone."""

    format: str = "change"
    encoding: str = "avro"
    is_output: bool = False
    key: str = "record"
    deleted_field: str | None = None
    is_deleted_field_chosen: bool = False
    before: str = "ignored"
    time: str | None = None
    decimal: str | None = None
    unavailable: str = ""
    sub_micros: str = "refuse"
    tombstones: bool = False
    schemas: SchemaLookup | None = None
    """Of an upstream with schemas by id."""
    rows_before: RowImages = RowImages.FULL
    """Which rows its changes come with, as its format declares them."""
    key_id: int = 0
    value_id: int = 0
    """Of an output with schemas by id: those that its records begin with."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Of an output that may get columns: the numbers of columns that records had before, each with its schema's id."""
    fills: Row = ()
    """Of such an output: what each column is in records that lack it."""
    first_width: int = 0
    """Of such an output: the columns that it began with, if that is known."""

    @classmethod
    def of(cls, declared: BaseModel) -> Self:
        """The form that a format of the configuration declares, with the registry or the ids that it was given."""
        settings = declared.model_dump()
        known = {name: value for name, value in settings.items() if name in cls.__dataclass_fields__}
        # Every upstream that can have digits beyond microseconds has a setting for them; outputs never do.
        is_output = settings["format"] != "change" and "sub_micros" not in settings
        more: dict[str, Any] = {"schemas": getattr(declared, "schemas_by_id", None)}
        if (images := getattr(declared, "images", None)) is not None:
            more["rows_before"] = RowImages(images.value)
        if (ids := getattr(declared, "ids", None)) is not None:
            more |= {"key_id": ids.key, "value_id": ids.value}
        chosen = "deleted_field" in declared.model_fields_set
        return cls(**known, **more, is_output=is_output, is_deleted_field_chosen=chosen)

    @classmethod
    def of_output(cls, job: JobDefinition, table: TableSchema) -> Self:
        """The form of a job's output, which may lack columns that the table has got."""
        form, ids = cls.of(job.format), job.format.ids
        earlier = () if ids is None else ids.earlier
        if not job.sends_new:
            return replace(form, earlier=earlier)
        widths = range(job.first_width or 1, len(job.columns))
        if not job.format.framed:
            earlier = tuple((width, 0) for width in widths)
        fills = tuple(table.by_name[column.source].fill for column in job.columns)
        return replace(form, earlier=earlier, fills=fills, first_width=job.first_width)

    @property
    def may_be_null(self) -> bool:
        """True where a record without a value is one of the form."""
        match self.format:
            case "change":
                return False
            case "append":
                return not self.is_output
            case "debezium":
                return self.tombstones if self.is_output else True
        return True

    @property
    def is_redelivered(self) -> bool:
        """True where records may be redelivered: an upstream's events."""
        return self.format == "debezium" and not self.is_output

    @property
    def may_leave_values_out(self) -> bool:
        """True where an event may leave out values that are what they were."""
        return self.is_redelivered and self.before != "full"

    @property
    def has_tombstones(self) -> bool:
        """True where a record without a value follows each DELETE."""
        return self.is_output and self.format == "debezium" and self.tombstones

    @property
    def truncates(self) -> bool:
        """True where digits beyond microseconds are cut off."""
        return self.sub_micros == "truncate"

    def deleted_field_of(self, columns: Sequence[Column]) -> str | None:
        """The field by which a value of `upsert` deletes its row; None where that is a column, unless it was chosen."""
        if self.format != "upsert":
            return None
        is_column = any(self.deleted_field in column.names_in_records for column in columns)
        return None if is_column and not self.is_deleted_field_chosen else self.deleted_field


class ReadRecord(NamedTuple):
    """The content of a record. `change` is None where it says nothing of the table.

    `left_out` are columns, by index, whose value is what it was: None in `change`. `place` is where the change stands
    in the log of its database, where that can be compared. `key` is the record's; None where it was not read. `width`:
    with how many columns the row was written, in an output that may get some; None elsewhere, and without a row.
    `rows` are those before and after as `RowCodec` writes them, where the record has these bytes; None elsewhere.
    """

    change: Change | None
    left_out: tuple[int, ...] = ()
    place: PlaceInLog | None = None
    key: Key | None = None
    width: int | None = None
    rows: tuple[bytes | None, bytes | None] | None = None


CHANGE_FORM = RecordForm()
