"""The maximum length of an output's records, in bytes, if upstream records are within `limits.record_bytes`.

A job's form decides: a change of it may hold the row twice, before and after; its key holds the key columns once more;
text grows in JSON, where a control character takes six bytes, and binary values become base64; a Connect frame has the
schema of each row in every record. The topic of a new output is made for the longest of them.
"""

from __future__ import annotations

from schemas.formats.protocol import Images
from schemas.job import JobDefinition
from schemas.settings.limits import HEADROOM_BYTES, KAFKA_MESSAGE_BYTES, Limits
from schemas.types import MAX_VALUE_BYTES

MOST_MESSAGE_BYTES = MAX_VALUE_BYTES + HEADROOM_BYTES
"""`message.max.bytes` of the lanes' producers: no record that is longer can be sent, whatever its topic takes."""
_JSON_GROWTH = 6
"""Bytes of JSON for a byte of text: of `\\u0000`. Base64 takes 4 for 3."""
_COLUMN_BYTES, _FRAME_COLUMN_BYTES = 64, 256
"""Bytes of a column in addition to its value and name, which may be those of a value as text; and of its schema."""
_HASH_BYTES = 64
"""Bytes of a hash, which stands for a value of any length."""
_RECORD_BYTES = 512
"""Bytes of a record in addition to key and value: the batch's own head, lengths, times, and its headers."""


def topic_bytes(job: JobDefinition, limits: Limits) -> int:
    """`max.message.bytes` with which an output takes every record that its form can make of legal ones."""
    rows = 2 if job.format.images is Images.FULL else 1
    encoding = str(getattr(job.format, "encoding", ""))
    growth = _JSON_GROWTH if encoding.startswith("json") else 1
    each = _COLUMN_BYTES + (_FRAME_COLUMN_BYTES if encoding == "json-schema" else 0)
    names = sum(
        each + 2 * len(column.name.encode()) + _HASH_BYTES * (column.mask == "hash") for column in job.columns
    )
    longest = growth * (rows + 1) * limits.record_bytes + (rows + 1) * names + HEADROOM_BYTES
    return min(max(longest, KAFKA_MESSAGE_BYTES), MOST_MESSAGE_BYTES)


def record_bytes(message_bytes: int) -> int:
    """Key and value of a record, at most, that a topic with this `max.message.bytes` takes."""
    return min(message_bytes, MOST_MESSAGE_BYTES) - _RECORD_BYTES
