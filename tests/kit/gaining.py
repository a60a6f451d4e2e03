"""Partitions that are added to an upstream on a real broker."""

from __future__ import annotations

from confluent_kafka import Producer

from streaming.kafka.topics import create_topic
from tests.kit.real import RealUpstream


def gain(upstream: RealUpstream, count: int = 1) -> None:
    """Add partitions, behind everything sent so far; keys go on by their number."""
    upstream.flush()
    upstream.partitions += count
    create_topic(upstream.kafka, upstream.name, upstream.partitions, gains=True)
    # A producer learns of them minutes later; this one is new.
    upstream._producer = Producer(upstream.kafka.producer())
