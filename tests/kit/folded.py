"""An output as a plain reader sees it: folded into a table, and how far it is."""

from __future__ import annotations

from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import BARRIER_HEADER, Change, Row
from schemas.settings.config import ServiceConfig
from streaming.cli.jobs.served import known_jobs
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import header_of
from streaming.kafka.topics import partitions_of
from streaming.reading.records.forms import RecordForm
from streaming.reading.topic import Complete, GrowingTopic, RecordStream, TableFold, Tally
from tests.kit.kafka_topics import read_tail
from tests.kit.real import Stage


def folded(stage: Stage, until: int | None = None, *, number: int = 0) -> dict[Key, Row]:
    """The output of a job, up to a barrier that all partitions have: the last one, or `until`.

    Raises: InputError for a change that does not fit what came before it, where changes say that.
    """
    return fold_of(stage.config(), stage.upstream.kafka, number, until)[0]


def as_created(config: ServiceConfig, job: JobDefinition) -> JobDefinition:
    """With the ids of its schemas, which are in the service's state."""
    return known_jobs(config)[job.name] if job.format.framed else job


def fold_of(
    config: ServiceConfig, kafka: KafkaSettings, number: int, until: int | None = None
) -> tuple[dict[Key, Row], Tally]:
    """The rows of a job's output, and the tally of its records."""
    definition, table = as_created(config, config.jobs[number]), config.table
    form = RecordForm.of_output(definition, table)
    fold, tally = TableFold(form.rows_before), Tally()
    stream = RecordStream(definition.columns_of(table), definition.key_columns_of(table), form)
    with GrowingTopic(kafka, definition.output, definition.barrier_topic, stream) as topic:
        complete = Complete(definition.output_partitions, until)
        for new in topic.new():
            for record in complete.add(new):
                tally.add(record)
                if record.key is not None and isinstance(record.body, Change):
                    fold.apply(record.key, record.body, record.where)
    return fold.rows, tally


def epoch_of(config: ServiceConfig, kafka: KafkaSettings, number: int) -> int:
    """The last barrier that all partitions of a job's output have; 0 if there is none."""
    definition = config.jobs[number]
    if partitions_of(kafka, definition.with_barriers) is None:
        return 0
    tails = [
        read_tail(
            kafka,
            definition.with_barriers,
            each,
            lambda record: header_of(record, BARRIER_HEADER) is not None,
        )
        for each in range(definition.output_partitions)
    ]
    return min(0 if tail is None else int(header_of(tail, BARRIER_HEADER) or 0) for tail in tails)
