"""Errors for the person who meets them: a code, what was found, what was expected, what to do next.

    BackfillError
    ├── ConfigError           what the user wrote (configuration, job, command line) can't work
    ├── InputError            the upstream topic holds something the contract forbids
    ├── TopicError            a topic is missing, or is not what it was declared to be
    ├── StateError            our own durable state is missing, foreign or damaged
    ├── EnvironmentProblem    the machine lacks something (Java, a jar, memory, a broker)
    ├── LawViolation          `verify` found an output that breaks the law
    ├── CommitConflict        somebody else committed first: look again before doing anything
    ├── Fenced                ... and that somebody is a newer instance of this service: stop
    └── OutcomeUnknown        a commit may or may not have happened: read back before doing anything

A message never holds a payload or a secret: it names the place (`topic-partition@offset`) where the
reader can look for himself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


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
    NO_JOB = "NO_JOB"
    TABLE_INVALID = "TABLE_INVALID"
    EXPRESSION_NOT_ALLOWED = "EXPRESSION_NOT_ALLOWED"
    EXPRESSION_INVALID = "EXPRESSION_INVALID"
    USAGE = "USAGE"
    # barriers
    BARRIER_MALFORMED = "BARRIER_MALFORMED"
    BARRIER_UNSUPPORTED = "BARRIER_UNSUPPORTED"
    BARRIER_REGRESSION = "BARRIER_REGRESSION"
    BARRIER_GAP = "BARRIER_GAP"
    BARRIER_LATE = "BARRIER_LATE"
    BARRIER_DISAGREE = "BARRIER_DISAGREE"
    BARRIER_DUPLICATE_WITH_DATA = "BARRIER_DUPLICATE_WITH_DATA"
    BARRIER_STALLED = "BARRIER_STALLED"
    AMBIGUOUS_RECORD = "AMBIGUOUS_RECORD"
    EPOCH_TOO_LARGE = "EPOCH_TOO_LARGE"
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
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    VALUE_OUT_OF_RANGE = "VALUE_OUT_OF_RANGE"
    AVRO_TRUNCATED = "AVRO_TRUNCATED"
    AVRO_TRAILING = "AVRO_TRAILING"
    AVRO_LIMIT = "AVRO_LIMIT"
    BAD_ENCODING = "BAD_ENCODING"
    # topics
    TOPIC_MISSING = "TOPIC_MISSING"
    TOPIC_REPLACED = "TOPIC_REPLACED"
    SAME_TOPIC = "SAME_TOPIC"
    PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
    OUTPUT_TOPIC_MISMATCH = "OUTPUT_TOPIC_MISMATCH"
    OUTPUT_TOPIC_MISSING = "OUTPUT_TOPIC_MISSING"
    FOREIGN_RECORDS = "FOREIGN_RECORDS"
    DATA_LOST = "DATA_LOST"
    COMPACTED_INPUT = "COMPACTED_INPUT"
    BROKER_UNREACHABLE = "BROKER_UNREACHABLE"
    AUTH_FAILED = "AUTH_FAILED"
    # state
    STATE_PATH_INVALID = "STATE_PATH_INVALID"
    STATE_TABLE_CORRUPT = "STATE_TABLE_CORRUPT"
    STATE_FOREIGN = "STATE_FOREIGN"
    STATE_CONFLICT = "STATE_CONFLICT"
    OUTPUT_OUT_OF_STEP = "OUTPUT_OUT_OF_STEP"
    VNODE_LAYOUT_CHANGED = "VNODE_LAYOUT_CHANGED"
    PK_CHANGED = "PK_CHANGED"
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    FENCED = "FENCED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    # the machine
    JAVA_MISSING = "JAVA_MISSING"
    DEPENDENCY_MISMATCH = "DEPENDENCY_MISMATCH"
    BROKER_FAILED = "BROKER_FAILED"
    SPARK_FAILED = "SPARK_FAILED"
    ADDRESS_UNUSABLE = "ADDRESS_UNUSABLE"
    NOT_SERVED = "NOT_SERVED"
    # verify
    LAW_BROKEN = "LAW_BROKEN"


class BackfillError(Exception):
    """Base of every error that this package raises on purpose; `str()` is one printable line.

    `where` is a place the user can go to: `topic-partition@offset`, a file, `file:line`, a key path.
    """

    exit_status: ClassVar[int] = 1

    def __init__(
        self, code: Code, *, found: str, expected: str, next_step: str, where: str | None = None
    ) -> None:
        self.code, self.found, self.expected = code, found, expected
        self.next_step, self.where = next_step, where
        place = f" at {where}" if where else ""
        super().__init__(f"{code}{place}: found {found}; expected {expected}; next: {next_step}")

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (Spark workers) by pickle, which would call __init__ positionally.
        return (_rebuild, (type(self), self.code, self.found, self.expected, self.next_step, self.where))


def _rebuild(
    kind: type[BackfillError], code: Code, found: str, expected: str, next_step: str, where: str | None
) -> BackfillError:
    return kind(code, found=found, expected=expected, next_step=next_step, where=where)


class ConfigError(BackfillError):
    """The user's configuration, job or command line can't work as written."""

    exit_status = 2


class Fenced(BackfillError):
    """A newer instance took over; nothing may be written any more, not even a clean-up."""

    exit_status = 3


class InputError(BackfillError):
    """The upstream topic holds something that the contract forbids."""

    exit_status = 4


class TopicError(BackfillError):
    """A topic is missing, or is not what it was declared to be."""

    exit_status = 5


class StateError(BackfillError):
    """Our own durable state is missing, foreign or damaged."""

    exit_status = 6


class EnvironmentProblem(BackfillError):
    """The machine lacks something: Java, a jar, memory, a broker."""

    exit_status = 7


class LawViolation(BackfillError):
    """An output breaks the law."""

    exit_status = 8


class CommitConflict(BackfillError):
    """A conditional commit was refused: the table moved on since it was read."""

    exit_status = 6


class OutcomeUnknown(BackfillError):
    """The commit's answer was lost. Never retry blindly: look at what is there first."""

    exit_status = 6
