"""`backfill inspect`: the beginning of a configuration for an existing topic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from confluent_kafka import Message

from schemas.settings.registry import load_registry
from streaming.cli.topics.target import Broker
from streaming.inspect.guess import configuration, guess
from streaming.inspect.samples import Sample
from streaming.kafka.consumer import RangeReader
from streaming.registry.client import AskedSchemas, Registry


def command(
    topic: Annotated[str, typer.Argument(help="Topic to look at.")],
    *,
    broker: Broker,
    records: Annotated[
        int, typer.Option(min=1, help="How many records to look at, of all partitions together.")
    ] = 1_000,
    registry: Annotated[
        str | None,
        typer.Option(
            help="Schema registry of records in Avro: its address, or a file with the section registry of a "
            "configuration."
        ),
    ] = None,
) -> None:
    """Look at the first records of a topic, and write what a configuration would say of it.

    The result is the sections kafka, upstream and table, on standard output, and registry where there is one. What the
    records do not say is a comment there, to be decided by hand. Nothing is written to the topic.
    """
    settings = broker.settings(None)
    with RangeReader(settings) as reader:
        samples = list(map(_sample, reader.first(topic, records)))
    seen = f"{len(samples):,} records of {topic}"
    address = settings.bootstrap or ""
    asked = None if registry is None else load_registry(registry)
    schemas = None if asked is None else AskedSchemas(Registry(asked))
    url = None if asked is None else asked.url
    sys.stdout.write(configuration(topic, address, guess(samples, schemas), seen, url))


def _sample(message: Message) -> Sample:
    return Sample(_bytes(message.key()), _bytes(message.value()), tuple(dict(message.headers() or ())))


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part
