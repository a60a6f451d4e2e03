"""The option `--skip-record`: upstream records to leave out, as errors name them."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.errors import Code, ConfigError, InputError
from schemas.records import RecordId, record_at, record_from_text


def places(texts: Iterable[str] | None) -> frozenset[RecordId]:
    """(partition, offset) of each `PARTITION@OFFSET`. Raises: ConfigError(USAGE)."""
    return frozenset(_place(text) for text in texts or ())


def with_option(error: InputError, topic: str) -> InputError:
    """The error of a reader that meets an invalid record of `topic`, with the option that leaves it out here, too."""
    record = record_at(error.where)
    if record is None or error.where not in (record, f"{topic}-{record}"):
        return error
    option = f"if the service has left it out: --skip-record {record}"
    return type(error)(error.code, **error.texts | {"next_step": f"{error.next_step}; {option}"})


def _place(text: str) -> RecordId:
    try:
        return record_from_text(text)
    except ValueError:
        raise ConfigError(
            Code.USAGE,
            where="--skip-record",
            found=repr(text),
            expected="PARTITION@OFFSET, as in 2@1047",
            next_step="take both numbers from the error's `topic-partition@offset`",
        ) from None
