"""What a consumer of the demo's output reads: a few rows, as JSON."""

from __future__ import annotations

import json

from schemas.job import JobDefinition
from schemas.records import Change
from schemas.table import TableSchema
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.reading.entries import Place
from streaming.reading.records.forms import RecordForm
from streaming.reading.shown import plain
from streaming.reading.sources import entry_of
from streaming.reading.topic import RecordStream

_LOOKED_AT = 200


def last_rows(kafka: KafkaSettings, job: JobDefinition, table: TableSchema, count: int = 3) -> list[str]:
    """The newest rows at the end of a partition that has some."""
    columns = table.select(job.columns)
    stream = RecordStream(columns, table.key_columns, RecordForm.of(job.format))
    with RangeReader(kafka) as reader:
        rows = []
        for partition, marks in enumerate(reader.watermarks(job.output)):
            first = max(marks.earliest, marks.stable - _LOOKED_AT)
            for chunk in reader.read(job.output, {partition: (first, marks.stable)}):
                records = (
                    stream.read(Place(job.output, *located(message)), entry_of(message)) for message in chunk
                )
                bodies = [record.body for record in records if record is not None]
                rows += [body.after for body in bodies if isinstance(body, Change) and body.after is not None]
            if rows:
                break
    names = [column.name for column in columns]
    shown = [dict(zip(names, map(plain, row), strict=True)) for row in rows[-count:]]
    return [json.dumps(row, ensure_ascii=False) for row in shown]
