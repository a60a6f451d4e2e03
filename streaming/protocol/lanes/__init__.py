"""The ways in which the lanes of a batch are run. What lanes get, and so what they send, is the same in each."""

from __future__ import annotations

from enum import Enum


class Way(Enum):
    """How the lanes of a batch get their records."""

    EMPTY = "empty"
    """There are none: the service itself sends the barriers (`quiet`)."""
    DIRECT = "direct"
    """A Spark job without a query: each lane reads the few records itself (`direct`)."""
    ON_SPARK = "on spark"
    """A Spark job reads the records and exchanges them, unless lanes can have them where they are (`on_spark`)."""
