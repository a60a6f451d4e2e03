"""Keys of a job's definition, for the documentation and for checks: each with its default and meaning."""

from __future__ import annotations

from schemas.formats.registry import OUTPUT_FORMATS, format_keys
from schemas.kinds.scans import DEFAULT_SCAN, SCAN_KINDS
from schemas.kinds.sinks import sink_key

DEFAULT_OUTPUT_PARTITIONS = 4
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
    "sink": sink_key(),
}
OWN_KEYS = tuple(KEYS)
"""Without those of formats."""
KEYS |= format_keys(OUTPUT_FORMATS)
"""Default and meaning of each key, in Markdown."""
