"""The codes of all errors, each with what it expects and what to do about it.

The texts are those of `errors.txt`. `python -m schemas.error_table` writes them into the tables of `docs/errors.md`,
behind each meaning.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_TEXTS = Path(__file__).with_name("errors.txt")
_PAGE = Path("docs/errors.md")
_ROW = re.compile(r"^(\| `([A-Z_]+)` \| [^|]+ \|).*$", re.MULTILINE)


class Code(StrEnum):
    """Every code a user can meet, grouped by where its cause lies."""

    # configuration, jobs, command line
    CONFIG_INVALID = "CONFIG_INVALID"
    SECRET_FILE_MODE = "SECRET_FILE_MODE"  # noqa: S105
    JOB_NAME_INVALID = "JOB_NAME_INVALID"
    JOB_INVALID = "JOB_INVALID"
    JOB_CHANGED = "JOB_CHANGED"
    JOB_EXISTS = "JOB_EXISTS"
    JOB_UNKNOWN = "JOB_UNKNOWN"
    RESCALE_REFUSED = "RESCALE_REFUSED"
    MUTATION_UNKNOWN = "MUTATION_UNKNOWN"
    NO_JOB = "NO_JOB"
    TABLE_INVALID = "TABLE_INVALID"
    COLUMN_ABSENT = "COLUMN_ABSENT"
    LOG_SHARED = "LOG_SHARED"
    EXPRESSION_NOT_ALLOWED = "EXPRESSION_NOT_ALLOWED"
    EXPRESSION_INVALID = "EXPRESSION_INVALID"
    USAGE = "USAGE"
    # where the table starts
    INITIAL_TABLE_MISSING = "INITIAL_TABLE_MISSING"
    INITIAL_VERSION_MISSING = "INITIAL_VERSION_MISSING"
    INITIAL_TABLE_MISFIT = "INITIAL_TABLE_MISFIT"
    INITIAL_TABLE_UNREADABLE = "INITIAL_TABLE_UNREADABLE"
    INITIAL_KEY_NULL = "INITIAL_KEY_NULL"
    INITIAL_KEY_DUPLICATE = "INITIAL_KEY_DUPLICATE"
    INITIAL_OFFSETS_MISFIT = "INITIAL_OFFSETS_MISFIT"
    INITIAL_CHANGED = "INITIAL_CHANGED"
    INITIAL_NOT_READ = "INITIAL_NOT_READ"
    TABLE_SUSPENDED = "TABLE_SUSPENDED"
    NOT_SUSPENDED = "NOT_SUSPENDED"
    INITIAL_READ_ONCE = "INITIAL_READ_ONCE"
    POSTGRES_UNREACHABLE = "POSTGRES_UNREACHABLE"
    POSTGRES_REFUSED = "POSTGRES_REFUSED"
    POSTGRES_FAILED = "POSTGRES_FAILED"
    POSTGRES_UNFIT = "POSTGRES_UNFIT"
    POSTGRES_RIGHTS = "POSTGRES_RIGHTS"
    POSTGRES_TABLE_MISSING = "POSTGRES_TABLE_MISSING"
    POSTGRES_TABLE_MISFIT = "POSTGRES_TABLE_MISFIT"
    POSTGRES_TABLE_CHANGED = "POSTGRES_TABLE_CHANGED"
    POSTGRES_KEY_MISFIT = "POSTGRES_KEY_MISFIT"
    POSTGRES_KEY_ORDER = "POSTGRES_KEY_ORDER"
    POSTGRES_ROWS_HIDDEN = "POSTGRES_ROWS_HIDDEN"
    POSTGRES_EVENTS_MISFIT = "POSTGRES_EVENTS_MISFIT"
    POSTGRES_SLOT_MISSING = "POSTGRES_SLOT_MISSING"
    POSTGRES_SLOT_MISFIT = "POSTGRES_SLOT_MISFIT"
    POSTGRES_NOT_STREAMING = "POSTGRES_NOT_STREAMING"
    CONNECTOR_UNREACHABLE = "CONNECTOR_UNREACHABLE"
    CONNECTOR_MISFIT = "CONNECTOR_MISFIT"
    # barriers
    BARRIER_MALFORMED = "BARRIER_MALFORMED"
    BARRIER_UNSUPPORTED = "BARRIER_UNSUPPORTED"
    BARRIER_REGRESSION = "BARRIER_REGRESSION"
    BARRIER_GAP = "BARRIER_GAP"
    BARRIER_LATE = "BARRIER_LATE"
    BARRIER_DISAGREE = "BARRIER_DISAGREE"
    BARRIER_DUPLICATE_WITH_DATA = "BARRIER_DUPLICATE_WITH_DATA"
    BARRIER_STALLED = "BARRIER_STALLED"
    NO_BARRIERS = "NO_BARRIERS"
    AMBIGUOUS_RECORD = "AMBIGUOUS_RECORD"
    # changes
    UNKNOWN_OP = "UNKNOWN_OP"
    CHANGE_MALFORMED = "CHANGE_MALFORMED"
    UPDATE_CHANGES_PK = "UPDATE_CHANGES_PK"
    KEY_MISMATCH = "KEY_MISMATCH"
    PK_NULL = "PK_NULL"
    DELETE_MISSING_KEY = "DELETE_MISSING_KEY"
    INSERT_EXISTING_KEY = "INSERT_EXISTING_KEY"
    OLD_ROW_MISMATCH = "OLD_ROW_MISMATCH"
    KEY_IN_TWO_PARTITIONS = "KEY_IN_TWO_PARTITIONS"
    TOMBSTONE_UNSUPPORTED = "TOMBSTONE_UNSUPPORTED"
    EMPTY_RECORD = "EMPTY_RECORD"
    TRUNCATE_UNSUPPORTED = "TRUNCATE_UNSUPPORTED"
    LOG_WENT_BACK = "LOG_WENT_BACK"
    TOAST_UNAVAILABLE = "TOAST_UNAVAILABLE"
    BEFORE_MISSING = "BEFORE_MISSING"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    VALUE_OUT_OF_RANGE = "VALUE_OUT_OF_RANGE"
    AVRO_TRUNCATED = "AVRO_TRUNCATED"
    AVRO_TRAILING = "AVRO_TRAILING"
    AVRO_LIMIT = "AVRO_LIMIT"
    SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN"
    SCHEMA_INCOMPATIBLE = "SCHEMA_INCOMPATIBLE"
    SCHEMA_WAITS = "SCHEMA_WAITS"
    COLUMN_RETYPED = "COLUMN_RETYPED"
    JSON_MALFORMED = "JSON_MALFORMED"
    BAD_ENCODING = "BAD_ENCODING"
    # topics
    TOPIC_MISSING = "TOPIC_MISSING"
    TOPIC_REPLACED = "TOPIC_REPLACED"
    SAME_TOPIC = "SAME_TOPIC"
    BARRIERS_TAKEN = "BARRIERS_TAKEN"
    BARRIER_TOPIC_MISMATCH = "BARRIER_TOPIC_MISMATCH"
    PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
    OUTPUT_TOPIC_MISMATCH = "OUTPUT_TOPIC_MISMATCH"
    TOPIC_NOT_CREATED = "TOPIC_NOT_CREATED"
    OUTPUT_LOSES_RECORDS = "OUTPUT_LOSES_RECORDS"
    OUTPUT_SCHEMA_INCOMPATIBLE = "OUTPUT_SCHEMA_INCOMPATIBLE"
    OUTPUT_SCHEMA_REFUSED = "OUTPUT_SCHEMA_REFUSED"
    OUTPUT_TOPIC_MISSING = "OUTPUT_TOPIC_MISSING"
    FOREIGN_RECORDS = "FOREIGN_RECORDS"
    DATA_LOST = "DATA_LOST"
    COMPACTED_INPUT = "COMPACTED_INPUT"
    COMPACTION_LAG_TOO_SHORT = "COMPACTION_LAG_TOO_SHORT"
    BROKER_UNREACHABLE = "BROKER_UNREACHABLE"
    AUTH_FAILED = "AUTH_FAILED"
    REGISTRY_UNREACHABLE = "REGISTRY_UNREACHABLE"
    REGISTRY_REFUSED = "REGISTRY_REFUSED"
    # state
    STATE_PATH_INVALID = "STATE_PATH_INVALID"
    STATE_TABLE_CORRUPT = "STATE_TABLE_CORRUPT"
    STATE_FOREIGN = "STATE_FOREIGN"
    STATE_CONFLICT = "STATE_CONFLICT"
    OUTPUT_OUT_OF_STEP = "OUTPUT_OUT_OF_STEP"
    VNODE_LAYOUT_CHANGED = "VNODE_LAYOUT_CHANGED"
    PK_CHANGED = "PK_CHANGED"
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    COLUMN_WAS_IGNORED = "COLUMN_WAS_IGNORED"
    FENCED = "FENCED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    # the machine
    JAVA_MISSING = "JAVA_MISSING"
    DEPENDENCY_MISMATCH = "DEPENDENCY_MISMATCH"
    BROKER_FAILED = "BROKER_FAILED"
    SPARK_FAILED = "SPARK_FAILED"
    NO_PROGRESS = "NO_PROGRESS"
    ROWS_FOLDER_FOREIGN = "ROWS_FOLDER_FOREIGN"
    ROWS_FOLDER_UNUSABLE = "ROWS_FOLDER_UNUSABLE"
    ROWS_DISK_FULL = "ROWS_DISK_FULL"
    ADDRESS_UNUSABLE = "ADDRESS_UNUSABLE"
    NOT_SERVED = "NOT_SERVED"
    # verify
    LAW_BROKEN = "LAW_BROKEN"


@dataclass(frozen=True, slots=True)
class Advice:
    """The two texts of a code, which do not depend on what was found."""

    expected: str
    next_step: str


def _table(texts: str) -> dict[Code, Advice]:
    table = {}
    for entry in texts.replace("\n        ", " ").split("\n\n"):
        if not entry.startswith("#"):
            code, expected, next_step = map(str.strip, entry.strip().split("\n"))
            table[Code(code)] = Advice(expected, next_step)
    return table


TABLE = _table(_TEXTS.read_text(encoding="utf-8"))


def filled(text: str, values: Mapping[str, object]) -> str:
    """A text with values for its placeholders. One without a value is no reason to lose the error: it becomes `…`."""
    return text.format_map(defaultdict(lambda: "…", values))


def expectation(code: Code, **values: object) -> str:
    """The text of what an error of this code expected."""
    return filled(TABLE[code].expected, values)


def with_table(page: str) -> str:
    """The page with the next step of each row as the table has it; what stands in italics varies."""

    def row(found: re.Match[str]) -> str:
        next_step = re.sub(r"\{(\w+)}", r"*\1*", TABLE[Code(found[2])].next_step)
        return f"{found[1]} {next_step} |"

    return _ROW.sub(row, page)


if __name__ == "__main__":
    _PAGE.write_text(with_table(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
