"""The format `append`: each record is a row of its own, of an upstream and of an output (docs/formats.md#append)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from schemas.formats.outputs.formats import RowOutput
from schemas.formats.protocol import Format, Framed, Half, Images
from schemas.formats.with_registry import JsonOrAvro, RegistryFormat
from schemas.kinds.columns import in_records
from schemas.table import Column

if TYPE_CHECKING:
    from schemas.avro.projection import Project
    from schemas.codec.results import Decoder, StructReader


class _WithoutIdentity(Format):
    """The common part of upstream and output."""

    may_hold_barriers: ClassVar[bool] = True

    @property
    def images(self) -> Images:
        return Images.ROWS

    @property
    def barriers_are_beside(self) -> bool:
        return True


class AppendFormat(_WithoutIdentity, RegistryFormat):
    """An upstream's: a value is a row, a null value nothing, and the key is not looked at."""

    format: Annotated[Literal["append"], Field(description="Rows without identity, with any key.")] = "append"
    encoding: JsonOrAvro = "json"

    @property
    def may_be_null(self) -> bool:
        return True

    @property
    def framed(self) -> Framed:
        return Framed(value=self.encoding == "avro-registry")

    # Decoders need packages that commands such as `list` do without.

    def projects(
        self, columns: Sequence[Column], key_columns: Sequence[Column], names: frozenset[str] | None = None
    ) -> Mapping[Half, Project]:
        from schemas.avro.projection import of_record

        return {"value": partial(of_record, columns=columns, sub_micros=self.sub_micros, names=names)}

    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Decoder:
        from schemas.codec.envelopes import AppendDecoder

        return AppendDecoder(tuple(columns), self._rows(in_records(columns)))

    def _rows(self, columns: tuple[Column, ...]) -> StructReader:
        names = self.names_of(columns)
        if self.encoding == "json":
            from schemas.codec.json.rows import JsonRows

            return JsonRows(columns, self.sub_micros, names=names)
        from schemas.codec.avro_reader import AvroRows

        return AvroRows(self.schemas_by_id, self.projects(columns, (), names)["value"], columns)


class AppendOutput(_WithoutIdentity, RowOutput):
    """An output's: a value is the row after the projection, and the key is the upstream record's."""

    format: Annotated[
        Literal["append"],
        Field(
            description="each record of an `append` upstream as a row, with the key that it came with; with "
            "`read: topic`."
        ),
    ] = "append"

    @property
    def framed(self) -> Framed:
        return Framed(value=self.encoding == "avro-registry")

    def keys(self, key_columns: Sequence[Column]) -> None:
        return None

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        return {"value": self.row_schema("Value", columns, topic)}
