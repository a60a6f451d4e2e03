"""The format `change`: docs/contract.md#records-on-the-upstream, Avro binary without a schema in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from schemas.avro.output_schemas import change_schema, key_schema
from schemas.formats.protocol import Half, OutputFormat, UpstreamFormat
from schemas.table import Column

if TYPE_CHECKING:
    from schemas.codec.results import Decoder
    from schemas.formats.outputs.records import AvroRowEncoder, ChangeEncoder


class ChangeFormat(UpstreamFormat, OutputFormat):
    """Changes with op, before and after: full images, and a delete is a record with a value."""

    may_hold_barriers: ClassVar[bool] = True
    format: Annotated[Literal["change"], Field(description="Changes with op, before and after.")] = "change"
    encoding: Annotated[
        Literal["avro"], Field(description="`avro`, binary and without a schema in front.")
    ] = "avro"

    # Encoders need packages that commands such as `list` do without.

    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Decoder:
        from schemas.codec.envelopes import ChangeDecoder

        return ChangeDecoder(tuple(columns), tuple(key_columns))

    def keys(self, key_columns: Sequence[Column]) -> AvroRowEncoder:
        from schemas.formats.outputs.records import AvroRowEncoder

        return AvroRowEncoder(tuple(key_columns))

    def values(self, columns: Sequence[Column]) -> ChangeEncoder:
        from schemas.formats.outputs.records import ChangeEncoder

        return ChangeEncoder(tuple(columns))

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        return {"key": key_schema(key_columns), "value": change_schema(columns)}
