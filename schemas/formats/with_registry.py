"""The common part of formats whose records may name schemas of a registry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from schemas.avro.registered import KnownSchemas, Schemas, WriterSchema
from schemas.formats.protocol import Half, UpstreamFormat
from schemas.kinds.columns import in_records
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from schemas.avro.projection import Project
    from schemas.codec.json.frame_columns import FrameColumns

JsonOrAvro = Annotated[
    Literal["json", "avro-registry"],
    Field(
        description="`json`, an object in UTF-8, which is its default; or `avro-registry`, Avro by a schema whose id "
        "stands in front."
    ),
]


class RegistryFormat(UpstreamFormat):
    """A format that may have an encoding with schemas by id. `with_schemas` says where they are looked up.

    They are no part of the declaration: two formats that differ in them alone are not equal, but hash the same.
    """

    sub_micros: Annotated[
        Literal["refuse", "truncate"],
        Field(
            description="what becomes of digits beyond microseconds that are not zero: `refuse`, the record is at "
            "fault; or `truncate`, they are cut off."
        ),
    ] = "refuse"
    on_new_column: Annotated[
        Literal["ignore", "wait", "add"],
        Field(
            description="what becomes of a field that is no column: `ignore`; `wait`, the table is suspended "
            "(SCHEMA_WAITS) until it is one or ignored by name; or `add`, it "
            "[becomes a column](operations.md#when-columns-change) by the schema of its record."
        ),
    ] = "ignore"
    on_wider_type: Annotated[
        Literal["stop", "widen"],
        Field(
            description="what becomes of a schema with a wider type for a column, such as a long for an `int`: `stop`, "
            "the table is suspended; or `widen`, the [column gets it](operations.md#wider-types)."
        ),
    ] = "stop"
    on_lost_column: Annotated[
        Literal["stop", "null"],
        BeforeValidator(lambda given: "null" if given is None else given),
        Field(
            description="what becomes of a schema (registry, frame) without a column that an earlier one has: `stop`, "
            "the table is suspended; or `null`, the column is "
            "[null in its records](operations.md#when-columns-change), or has its `fill`."
        ),
    ] = "stop"
    # A list in a file: not strict here, as a list is no tuple.
    ignored_columns: Annotated[
        tuple[str, ...], Field(strict=False, description="Fields that are ignored where others wait.")
    ] = ()
    row_field: ClassVar[str | None] = None
    """The field of a record that is the row; None where the record itself is."""
    _schemas: Schemas = PrivateAttr(default=KnownSchemas())

    @property
    def column_keys(self) -> frozenset[str]:
        return frozenset(["field", "unsigned", "fill"])

    def names_of(self, columns: Sequence[Column], *beside: str | None) -> frozenset[str] | None:
        """The names that rows of these columns may have; None: any."""
        if self.on_new_column == "ignore":
            return None
        names = {name for each in columns for name in (*each.names_in_records, *each.ignored)}
        return frozenset({*names, *self.ignored_columns, *filter(None, beside)})

    def frame_columns(self, table: TableSchema) -> FrameColumns | None:
        """See `UpstreamFormat`."""
        from schemas.codec.json.frame_columns import FrameColumns
        from schemas.codec.json.text import FRAME_PARTS

        names = {name for column in table.columns for name in column.names_in_records}
        may_be_row = self.row_field is None and not names.isdisjoint(FRAME_PARTS)
        if self.on_lost_column == "null" or self.framed.value or may_be_row:
            return None
        return FrameColumns(table.expected_columns, self.row_field)

    @abstractmethod
    def projects(
        self, columns: Sequence[Column], key_columns: Sequence[Column], names: frozenset[str] | None = None
    ) -> Mapping[Half, Project]:
        """The reading of values and keys in Avro, by the writer's schema; `names` as in `of_record`.

        The columns are under their names in records.
        """

    def incompatibility_of_schema(self, half: Half, schema: WriterSchema, table: TableSchema) -> str | None:
        """See `Format`."""
        from schemas.avro.projection import incompatibility_of

        return incompatibility_of(
            schema, self.projects(in_records(table.columns), in_records(table.key_columns))[half]
        )

    @property
    def schemas_by_id(self) -> Schemas:
        """The lookup of schemas for the reference decoder."""
        return self._schemas

    @property
    def known(self) -> KnownSchemas:
        return self._schemas if isinstance(self._schemas, KnownSchemas) else KnownSchemas()

    def with_schemas(self, schemas: Schemas) -> Self:
        """This format with schemas to look up in; one that is not framed ignores them."""
        if not self.framed:
            return self
        copy = self.model_copy()
        copy._schemas = schemas
        return copy
