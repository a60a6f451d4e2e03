"""Columns that the schemas in Kafka Connect's frames lack, record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.json.text import FRAMED, Frames
from schemas.codec.results import flags_of
from schemas.json.tokens import FieldSchema
from schemas.table import Column


class FrameColumns:
    """Reads which of these columns a record's frame lacks. For one thread: it remembers frames.

    `image`: the field whose schema describes the columns; None where that is the record itself.
    """

    def __init__(self, columns: Sequence[Column], image: str | None) -> None:
        self._names = [(each.name, each.names_in_records) for each in columns]
        self._frames = Frames[str](image)

    def lacking(self, values: pa.BinaryArray) -> pa.StringArray:
        """The names of the columns by record, in the table's order with commas between them; "" for none of them.

        Null for a record without a frame, and for one of which it is not certain.
        """
        found, codes = list[str](), np.full(len(values), -1, np.intp)
        framed = np.flatnonzero(flags_of(pc.starts_with(values, FRAMED)))
        for frame, rows in self._frames.grouped(values, framed, self._lacking):
            codes[rows] = len(found)
            found.append(frame.shape)
        for row in framed[codes[framed] < 0].tolist():
            alone = self._frames.frame_of(values[row].as_py().decode(errors="replace"), self._lacking)
            if alone is not None:
                codes[row] = len(found)
                found.append(alone.shape)
        texts = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(found, pa.string()))
        return texts.cast(pa.string())

    def _lacking(self, schemas: Mapping[str, FieldSchema]) -> str | None:
        """None for the frame of a record that has no row, such as a null."""
        if not schemas:
            return None
        return ",".join(name for name, names in self._names if schemas.keys().isdisjoint(names))
