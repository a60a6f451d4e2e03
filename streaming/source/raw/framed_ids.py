"""The ids of schemas in front of keys or values, columnar."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.registered import FRAME_BYTES, framed_id

NO_ID = -1


@dataclass(frozen=True)
class NamedSchemas:
    """The id that each record names, `NO_ID` for none: it is null, or has no frame."""

    ids: npt.NDArray[np.int64]

    @classmethod
    def of(cls, halves: pa.BinaryArray) -> NamedSchemas:
        """The ids of n keys, or n values."""
        prefixes = pc.binary_slice(halves, 0, FRAME_BYTES).fill_null(b"").dictionary_encode()
        found = [framed_id(prefix) for prefix in prefixes.dictionary.to_pylist()]
        ids = np.array([NO_ID if each is None else each for each in found], np.int64)
        return cls(ids[prefixes.indices.to_numpy()])

    def within(self, wanted: Collection[int]) -> npt.NDArray[np.bool_]:
        """True where the id is one of these."""
        found: npt.NDArray[np.bool_] = np.isin(self.ids, list(wanted))
        return found

    def outside(self, known: Collection[int]) -> npt.NDArray[np.bool_]:
        """True where there is an id, and it is none of these."""
        found: npt.NDArray[np.bool_] = (self.ids != NO_ID) & ~self.within(known)
        return found

    @property
    def distinct(self) -> list[int]:
        """The ids that occur."""
        return [int(each) for each in np.unique(self.ids) if each != NO_ID]
