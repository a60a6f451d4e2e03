"""Keys of a job's definition, each with its default and meaning; and checks of those for its output topic.

Compaction is refused where barriers are records of the output, which have no key, and a retention taken only where the
job allows that its output loses its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import inf

from schemas.errors import Code
from schemas.faults import Faults, brief
from schemas.formats.protocol import Images, OutputFormat
from schemas.formats.registry import DEFAULT, OUTPUT_FORMATS, format_keys
from schemas.kinds.configs import DEFAULT_SCAN, SCAN_KINDS, ScanConfig, sink_key
from schemas.kinds.fills import has_utf8
from schemas.kinds.projection import OutputColumn
from schemas.records import BARRIER_HEADER, EPOCH_HEADER
from schemas.settings.limits import duration_text, parse_duration
from schemas.table import MAX_VNODE_COUNT, TableSchema
from schemas.topics import DEAD_LETTERS_SUFFIX, is_topic_name

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DEFAULT_OUTPUT_PARTITIONS = 4
MAX_REPLICATION_FACTOR = 32_767
MOST_HEADERS = 16
RESERVED_HEADERS = frozenset({BARRIER_HEADER, EPOCH_HEADER})
"""Headers by which the service's own records are known."""
MAX_LATENCY_BUDGET_MS = 3_600_000
RETENTION_KEYS = ("retention.ms", "retention.bytes")
BARRIER_TOPIC = {"cleanup.policy": "delete"}
"""The settings of a topic that is made for barriers. It is kept for ever: readers begin at the first one."""
_KEY = re.compile(r"[a-z]+(\.[a-z]+){0,8}")
_LONGEST_VALUE = 200
KEYS = {
    "name": ("", "Lower-case letters, digits and `-`."),
    "output": ("", "Topic; created if absent."),
    "columns": (
        "all",
        "The output's [columns](outputs.md#columns), also renamed or masked, as in `[id, {mail: hash(email)}]`; the "
        "key is in the record's key in any case.",
    ),
    "new_columns": (
        "`ignore`",
        "`send`: the output gets the columns that [the table gets](operations.md#when-columns-change); of `upsert`, "
        "`debezium` and `append` without `columns`, with barriers beside the data.",
    ),
    "key": (
        "the primary key",
        "Columns in the keys of records, which hold the primary key, as in `[region, id]`: see "
        "[another key](outputs.md#another-key).",
    ),
    "hash_key_file": (
        "none",
        "File with the key of [hashes](outputs.md#columns), mode `0600`, on each machine with lanes: its "
        "absolute path.",
    ),
    "filter": (
        "none",
        "Keeps rows for which it is true: `= != < <= > >= IN BETWEEN LIKE IS NULL AND OR NOT` with literals.",
    ),
    "output_partitions": (
        f"`{DEFAULT_OUTPUT_PARTITIONS}`",
        "At most `table.vnode_count`. With `read: topic`, and with `distribution: upstream`, the upstream's number, "
        "which is the default then.",
    ),
    "read": (
        f"`{DEFAULT_SCAN.kind}`",
        f"What is read beside live changes: {', '.join(f'`{kind}`' for kind in SCAN_KINDS)}; see [kinds](kinds.md).",
    ),
    "from": (
        "`beginning`",
        "`now`: no row from before is sent, only changes; of `upsert` and `append`. See [extent](outputs.md#extent).",
    ),
    "until": (
        "none",
        "`complete`: the output ends once it has all rows. See [extent](outputs.md#extent).",
    ),
    "rate_limit": (
        "none",
        "Snapshot rows per second; 0 stands still. Live changes are never limited. A `throttle` changes it.",
    ),
    "paused": (
        "`false`",
        "Create it paused: nothing is read for it until `backfill resume`.",
    ),
    "latency_budget": (
        "none",
        "How much a snapshot read may delay live changes, as in `2s`. None: as fast as it goes.",
    ),
    "replication_factor": (
        "`kafka.replication_factor`",
        "Copies of the output, and of its dead letters, when they are created.",
    ),
    "topic_config": (
        "none",
        "Kafka's settings for the output when it is created, as in `{min.insync.replicas: 2}`. "
        "Compaction only with a `barrier_topic`.",
    ),
    "allow_retention": (
        "`false`",
        "Take an output whose `retention.ms` or `retention.bytes` deletes records: late readers miss its beginning.",
    ),
    "barrier_topic": (
        "none for `change`, else `<output>.barriers`",
        "Topic for the barriers of the output, made with it; without it they are records of the output. They are in "
        "an output of `append` if it names the output itself.",
    ),
    "headers": (
        "none",
        "Names of headers of upstream records that records of the output have as well, as in `[trace-id]`, see "
        "[headers](outputs.md#headers).",
    ),
    "sink": sink_key(),
}
MAY_CHANGE = ("allow_retention", "paused")
"""Keys that may change during the life of a job; `paused` counts when it is created."""
NOT_QUOTED = ("hash_key_file",)
"""Keys in which a user may have written a secret in place of its file."""
OWN_KEYS = tuple(KEYS)
"""The keys without those of formats."""
KEYS |= format_keys(OUTPUT_FORMATS)
"""Default and meaning of each key, in Markdown."""


def is_job_name(name: object) -> bool:
    """True for lower-case letters, digits and `-`, 63 at most."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


# Each of these gives a value of the right type even for a fault, so that the remaining keys are checked too.


def job_name(declared: object, faults: Faults) -> str:
    """The name of a job."""
    if is_job_name(declared):
        return str(declared)
    wanted = "is not lower-case letters, digits and '-', 63 at most, beginning with a letter or digit"
    faults.add(f"name {brief(declared)} {wanted}", Code.JOB_NAME_INVALID)
    return ""


def output_topic(declared: object, faults: Faults) -> str:
    """The topic of an output, whose dead letters have a topic as well."""
    if not is_topic_name(declared) or not is_topic_name(f"{declared}{DEAD_LETTERS_SUFFIX}"):
        faults.add(f"output {brief(declared)} is no topic name (letters, digits, '.', '_', '-', 236 at most)")
    return str(declared)


def is_finite(setting: str) -> bool:
    """True if the value of a retention setting lets Kafka delete records; -1 does not."""
    return not setting.startswith("-")


def output_partitions(declared: object, table: TableSchema, scan: ScanConfig, faults: Faults) -> int:
    """Partitions of the output; 0 for as many as the upstream has, where that is so and no number is given."""
    most, reason = table.vnode_count, " (the vnode_count)"
    are_upstream = table.by_partition or scan.reads_upstream
    if are_upstream:
        most, reason = MAX_VNODE_COUNT, ""
    if declared is None:
        return 0 if are_upstream else min(DEFAULT_OUTPUT_PARTITIONS, most)
    if type(declared) is int and 1 <= declared <= most:
        return declared
    faults.add(f"output_partitions {brief(declared)} is not in 1..{most}{reason}")
    return 1


def replication_factor(declared: object, faults: Faults) -> int | None:
    """Copies of a new topic, None for the broker's default."""
    if declared is None or (type(declared) is int and 1 <= declared <= MAX_REPLICATION_FACTOR):
        return declared
    faults.add(f"replication_factor {brief(declared)} is not in 1..{MAX_REPLICATION_FACTOR}")
    return None


def extent(declaration: Mapping[str, object], format_: OutputFormat, faults: Faults) -> tuple[bool, bool]:
    """The keys `from` and `until`: true if a job begins now, and if it ends once it is complete."""
    from_now = _is_chosen("from", declaration, ("beginning", "now"), faults)
    until_complete = _is_chosen("until", declaration, (None, "complete"), faults)
    if from_now and format_.images is Images.FULL:
        faults.add(
            f"from: now with format {format_.form.split()[0]}, whose updates and deletes say what a row was, "
            "which the output may not have; upsert and append do not"
        )
    if from_now and until_complete:
        faults.add("from: now with until: complete, which together send nothing")
    return from_now, until_complete


def sends_new_columns(
    declaration: Mapping[str, object], format_: OutputFormat, barriers: str | None, faults: Faults
) -> bool:
    """The key `new_columns`: true if the output gets the columns that the table gets."""
    sends = _is_chosen("new_columns", declaration, ("ignore", "send"), faults)
    if sends and format_ == DEFAULT:
        faults.add("new_columns: send with format change, whose records have the same columns for ever")
    elif sends and barriers is None:
        faults.add("new_columns: send with barriers in the data, which have no room to tell new columns")
    if sends and declaration.get("columns") is not None:
        faults.add("new_columns: send with columns, which name all that the output has")
    return sends


def _is_chosen(
    key: str, declaration: Mapping[str, object], values: tuple[str | None, str], faults: Faults
) -> bool:
    """True for the second of two values; the first is what it is where it is left out."""
    declared = declaration.get(key)
    if declared is None or declared in values:
        return declared == values[1]
    faults.add(f"{key} {brief(declared)} is not {' or '.join(filter(None, values))}")
    return False


def flag(key: str, declaration: Mapping[str, object], faults: Faults) -> bool:
    """A key that is true or false, and false where it is left out."""
    declared = declaration.get(key)
    if declared is None or isinstance(declared, bool):
        return bool(declared)
    faults.add(f"{key} {brief(declared)} is neither true nor false")
    return False


def hash_key_file(declared: object, columns: Collection[OutputColumn], faults: Faults) -> str | None:
    """The file with the key of hashes. Its path is not quoted: it may be the key."""
    hashes = any(column.mask == "hash" for column in columns)
    if declared is None:
        if hashes:
            faults.add("no 'hash_key_file', which has the key of hash(...) in columns")
        return None
    if not isinstance(declared, str) or not declared.isprintable() or not declared.startswith("/"):
        faults.add("hash_key_file is not the absolute path of a file")
        return None
    if not hashes:
        faults.add("hash_key_file is given, and no column is hash(...)")
    return declared


def passed_headers(declared: object, faults: Faults) -> tuple[str, ...]:
    """The names of the headers that records of the output have from the upstream's, sorted."""
    if declared is None:
        return ()
    if not isinstance(declared, list) or not all(map(_is_text, declared)):
        faults.add(f"headers {brief(declared)} is not a list of names")
        return ()
    for name in sorted(set(declared)):
        if name in RESERVED_HEADERS:
            faults.add(f"headers names {name!r}, which is the service's own")
        elif declared.count(name) > 1:
            faults.add(f"headers names {brief(name)} twice")
    if len(declared) > MOST_HEADERS:
        faults.add(f"headers names {len(declared)}, more than {MOST_HEADERS}")
    return tuple(sorted(set(declared)))


def topic_config(
    declared: object, faults: Faults, *, may_lose: bool, no_compaction: str | None
) -> tuple[tuple[str, str], ...]:
    """Settings of a new topic by Kafka's names for them, sorted.

    `may_lose`: a retention is allowed. `no_compaction`: why compaction is not, None where it is.
    """
    if declared is None:
        return ()
    if not isinstance(declared, Mapping):
        faults.add(f"topic_config {brief(declared)} is no mapping of Kafka's topic settings")
        return ()
    settings: dict[str, str] = {}
    for key, value in declared.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            faults.add(f"topic_config names {brief(key)}, which is no setting as in min.insync.replicas")
        elif not isinstance(value, (str, int, float)) or not _is_text(_text(value), _LONGEST_VALUE):
            faults.add(f"topic_config.{key} {brief(value)} is no text, number or boolean")
        else:
            settings[key] = _text(value)
    if "compact" in settings.get("cleanup.policy", "") and no_compaction is not None:
        faults.add(f"topic_config.cleanup.policy holds compact, and {no_compaction}")
    for key in RETENTION_KEYS:
        if key in settings and is_finite(settings[key]) and not may_lose:
            faults.add(
                f"topic_config.{key} lets the output lose its beginning; allow_retention: true allows it"
            )
    return tuple(sorted(settings.items()))


def _is_text(value: object, longest: float = inf) -> bool:
    """True for a text with a form in UTF-8, not empty; half a surrogate pair could not be sent on."""
    return isinstance(value, str) and has_utf8(value) and 0 < len(value) <= longest


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def rate_limit(declared: object, faults: Faults) -> int | None:
    """Snapshot rows per second, None for no limit."""
    if declared is None or (type(declared) is int and 0 <= declared < 1 << 63):
        return declared
    faults.add(f"rate_limit {brief(declared)} is no whole number of rows per second, 0 or more")
    return None


def budget_ms(declared: object, faults: Faults) -> int | None:
    """The key `latency_budget` in milliseconds, None for none."""
    if declared is None:
        return None
    try:
        budget_ms = parse_duration(declared)
    except ValueError as error:
        faults.add(f"latency_budget {error}")
        return None
    if not 0 < budget_ms <= MAX_LATENCY_BUDGET_MS:
        faults.add(f"latency_budget {brief(declared)} is not in 1ms..{duration_text(MAX_LATENCY_BUDGET_MS)}")
    return budget_ms
