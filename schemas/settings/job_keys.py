"""Keys of a job's definition, each with its default and meaning; and checks of those for its output topic.

Compaction is refused where barriers are records of the output, which have no key, and a retention taken only where the
job allows that its output loses its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from schemas.faults import Faults, brief
from schemas.formats.registry import OUTPUT_FORMATS, format_keys
from schemas.kinds.scans import DEFAULT_SCAN, SCAN_KINDS, ScanConfig
from schemas.kinds.sinks import sink_key
from schemas.records import BARRIER_HEADER, EPOCH_HEADER
from schemas.table import MAX_VNODE_COUNT, TableSchema

DEFAULT_OUTPUT_PARTITIONS = 4
MAX_REPLICATION_FACTOR = 32_767
MOST_HEADERS = 16
RESERVED_HEADERS = frozenset({BARRIER_HEADER, EPOCH_HEADER})
"""Headers by which the service's own records are known."""
RETENTION_KEYS = ("retention.ms", "retention.bytes")
BARRIER_TOPIC = {"cleanup.policy": "delete"}
"""The settings of a topic that is made for barriers. It is kept for ever: readers begin at the first one."""
_KEY = re.compile(r"[a-z]+(\.[a-z]+){0,8}")
_LONGEST_VALUE = 200
KEYS = {
    "name": ("", "Lower-case letters, digits and `-`."),
    "output": ("", "Topic; created if absent."),
    "columns": ("all", "The output's columns; the key is in the record's key in any case."),
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
    "rate_limit": (
        "none",
        "Snapshot rows per second; 0 stands still. Live changes are never limited. A `throttle` changes it.",
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
OWN_KEYS = tuple(KEYS)
"""The keys without those of formats."""
KEYS |= format_keys(OUTPUT_FORMATS)
"""Default and meaning of each key, in Markdown."""


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


def allow_retention(declared: object, faults: Faults) -> bool:
    """The key `allow_retention`: true if the output may lose its beginning."""
    if declared is None or isinstance(declared, bool):
        return bool(declared)
    faults.add(f"allow_retention {brief(declared)} is neither true nor false")
    return False


def passed_headers(declared: object, faults: Faults) -> tuple[str, ...]:
    """The names of the headers that records of the output have from the upstream's, sorted."""
    if declared is None:
        return ()
    if not isinstance(declared, list) or not all(isinstance(name, str) and name for name in declared):
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
        elif not isinstance(value, (str, int, float)) or not 0 < len(_text(value)) <= _LONGEST_VALUE:
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


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
