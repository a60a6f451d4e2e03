"""The format `change`: docs/contract.md#records-on-the-upstream, Avro binary without a schema in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from schemas.avro.binary import change_schema, key_schema
from schemas.formats.protocol import Half, OutputFormat, UpstreamFormat
from schemas.table import Column

if TYPE_CHECKING:
    from schemas.codec.results import Decoder
    from schemas.formats.change_avro import AvroChanges, ChangeKeys


class ChangeFormat(UpstreamFormat, OutputFormat):
    """Changes with op, before and after: full images, and a delete is a record with a value."""

    format: Annotated[Literal["change"], Field(description="Changes with op, before and after.")] = "change"
    encoding: Annotated[
        Literal["avro"], Field(description="`avro`, binary and without a schema in front.")
    ] = "avro"

    @property
    def may_hold_barriers(self) -> bool:
        return True

    # Encoders need packages that commands such as `list` do without.

    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Decoder:
        from schemas.codec.change import ChangeDecoder

        return ChangeDecoder(tuple(columns), tuple(key_columns))

    def keys(self, key_columns: Sequence[Column]) -> ChangeKeys:
        from schemas.formats.change_avro import ChangeKeys

        return ChangeKeys(tuple(key_columns))

    def values(self, columns: Sequence[Column]) -> AvroChanges:
        from schemas.formats.change_avro import AvroChanges

        return AvroChanges(tuple(columns))

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        return {"key": key_schema(key_columns), "value": change_schema(columns)}
