"""A small backfill on a broker of its own, played once so that the JVM can note which classes it takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from streaming.broker.embedded import EmbeddedBroker
from streaming.demo.config import LIVE_RATE, UPSTREAM_PARTITIONS, DemoConfig, Upstream
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, produce_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.protocol.report import BatchReport
from streaming.runtime.java.jars import JarSet, broker_archive, ensure, recording
from streaming.service.bootstrap import hosted_service

_ROWS, _BATCHES = 5_000, 8  # more than a short batch, and live changes that are short ones
_COMPACTION_LEAST_ROWS = 100


def warm_up() -> None:
    """Record the class archives of Spark and of the broker, in about half a minute.

    Raises: EnvironmentProblem when broker or Spark do not come up.
    """
    with (
        tempfile.TemporaryDirectory(prefix="backfill-rehearsal-") as folder,
        recording(broker_archive(ensure(JarSet.BROKER))) as option,
        EmbeddedBroker(heap="512m", recording=option) as broker,
    ):
        kafka = KafkaSettings(broker.bootstrap)
        config = DemoConfig(Path(folder), _ROWS, 0, Upstream.CHANGE).configure(broker.bootstrap)
        create_topic(kafka, config.upstream, UPSTREAM_PARTITIONS)
        generator = ChangeGenerator(config.table)
        produce_rows(ChangeSender(kafka, config.upstream), generator, _ROWS)
        seen = 0

        def on_batch(report: BatchReport) -> None:
            nonlocal seen
            seen += 1
            if seen >= _BATCHES:
                service.stop()

        with (
            hosted_service(config, kafka, on_batch=on_batch, record_classes=True) as service,
            LiveLoad(kafka, config.upstream, generator, LIVE_RATE, ChangeMix()),
        ):
            service.compaction_least_rows = _COMPACTION_LEAST_ROWS
            service.run()
