"""The time for which a topic keeps unread records, by its settings."""

from __future__ import annotations

import pytest

from streaming.source.retention import kept_ms

SETTINGS = {"retention.ms": "5000", "min.compaction.lag.ms": "3600", "delete.retention.ms": "400"}


@pytest.mark.parametrize(
    ("policy", "retention_ms", "kept"),
    [
        ("delete", "5000", 5_000),
        ("delete", "-1", None),
        ("compact", "5000", 4_000),
        ("compact,delete", "5000", 4_000),
        ("compact,delete", "3000", 3_000),
        ("delete,compact", "-1", 4_000),
    ],
)
def test_the_shorter_of_what_deletes_counts(policy: str, retention_ms: str, kept: int | None) -> None:
    settings = {**SETTINGS, "cleanup.policy": policy, "retention.ms": retention_ms}
    assert kept_ms(settings) == kept
