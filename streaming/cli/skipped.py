"""The option `--skip-record`: upstream records to leave out, as errors name them."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.errors import Code, ConfigError
from schemas.records import RecordId


def places(texts: Iterable[str] | None) -> frozenset[RecordId]:
    """(partition, offset) of each `PARTITION@OFFSET`. Raises: ConfigError(USAGE)."""
    return frozenset(_place(text) for text in texts or ())


def _place(text: str) -> RecordId:
    partition, at, offset = text.partition("@")
    if not (at and partition.isdecimal() and offset.isdecimal()):
        raise ConfigError(
            Code.USAGE,
            where="--skip-record",
            found=repr(text),
            expected="PARTITION@OFFSET, as in 2@1047",
            next_step="take both numbers from the error's `topic-partition@offset`",
        )
    return int(partition), int(offset)
