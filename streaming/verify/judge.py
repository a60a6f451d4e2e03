"""The entry point: check a topic on a broker."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from typing import ParamSpec, cast

from pydantic import BaseModel

from schemas.errors import Code, EnvironmentProblem, InputError, TopicError
from schemas.filter.ast import Filter
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition
from schemas.kinds.projection import OutputColumn
from schemas.records import RecordId
from schemas.settings.security import hash_key_of
from schemas.table import TableSchema
from schemas.topics import DEAD_LETTERS_SUFFIX
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import partitions_of
from streaming.reading.entries import Place, Source
from streaming.reading.records.forms import CHANGE_FORM, RecordForm
from streaming.verify.checker import Checker
from streaming.verify.dead_letters import DeadLetters
from streaming.verify.findings import MOST_FINDINGS_KEPT, Findings, Report
from streaming.verify.fold import InitialTable
from streaming.verify.records.canonical import WORTH_PROCESSES, Decoding, Processes, canonical, in_process
from streaming.verify.records.order import WentBack
from streaming.verify.records.rows import OutputView, condition_of
from streaming.verify.sources import FoldedOutput, TopicPair, read_letters

SETTLE_S = 60.0
"""Seconds for a batch to become visible in all partitions of an output, as its lanes commit one by one."""
_BEGINNINGS = 5
_Asked = ParamSpec("_Asked")

Progress = Callable[[int, int], None]
"""Called with offsets read so far and offsets in all."""


def _despite_deletions(judge: Callable[_Asked, Report]) -> Callable[_Asked, Report]:
    """The judgement, begun anew where a live service deleted the oldest barriers while they were read."""

    @wraps(judge)
    def judged(*args: _Asked.args, **kwargs: _Asked.kwargs) -> Report:
        for _ in range(_BEGINNINGS - 1):
            try:
                return judge(*args, **kwargs)
            except (InputError, TopicError) as error:
                topic = (error.where or "").rpartition("-")[0]
                if error.code is not Code.DATA_LOST or topic not in cast(
                    "Sequence[str]", kwargs.get("barriers", ())
                ):
                    raise
        return judge(*args, **kwargs)

    return judged


@_despite_deletions
def verify_topics(
    settings: KafkaSettings,
    upstream: str,
    output: str,
    table: TableSchema,
    *,
    columns: Sequence[OutputColumn] | None = None,
    hash_key: bytes = b"",
    key: Sequence[str] = (),
    condition: Filter | None = None,
    progress: Progress | None = None,
    settle_s: float = SETTLE_S,
    keep: int = MOST_FINDINGS_KEPT,
    require_complete: bool = False,
    left_out: frozenset[RecordId] = frozenset(),
    siblings: Sequence[str] = (),
    formats: tuple[BaseModel | None, BaseModel | RecordForm | None] = (None, None),
    barriers: tuple[str | None, str | None] = (None, None),
    reads_upstream: bool = False,
    from_now: bool = False,
    initial: InitialTable | None = None,
) -> Report:
    """Check the law (docs/contract.md#the-law) for `output` against `upstream`, record by record, as they are now.

    `table` is the upstream's, `columns` and `condition` the job's (all columns, no filter by default; `condition`
    parsed against `table`), `hash_key` that of its hashes, `key` the columns of its keys. Both topics may be live: what
    comes after the start is not looked at. `left_out` are the upstream records, (partition, offset), that the service
    left out by its operator's order. Where invalid records are parked, in `<output>.dead-letters`, these are judged
    too; `siblings` are other outputs of the same service, whose letters cover records before this job's start.
    `formats` are the declared ones of upstream and output, None for `change`, or the form of an output that may get
    columns; `barriers` their barrier topics, None for one that has none. At most `keep` findings are kept, all are
    counted. `reads_upstream`: the job is sent the upstream's records; `from_now`: only those behind its start. With
    `require_complete` an unfinished part is a finding, too. `initial`: what the upstream's changes begin from.

    Raises: TopicError for a topic that is missing, compacted, the other one, or whose beginning is gone; InputError for
    an upstream that is no history of this table: bytes that don't decode, barriers out of order; EnvironmentProblem.
    """
    _refuse_same(upstream, output)
    started, forms = time.monotonic(), (_form(formats[0]), _form(formats[1]))
    tested = None if condition is None else condition_of(condition, table)
    view = OutputView(table, columns, tested, forms[1].rows_before, hash_key, key)
    elsewhere = _parked_elsewhere(settings, upstream, output, siblings)
    pair = partial(TopicPair, settings, upstream, output, settle_s=settle_s, left_out=left_out)
    findings, went_back, count = Findings(keep), list[str](), _Counter(progress)
    letters = _dead_letters(settings, output, table, view, findings, elsewhere, left_out)
    with (
        pair(on_read=count, barriers=barriers, begins=initial.offsets if initial else ()) as topics,
        _collector_paused(),
        _decoding(topics.offsets) as decoding,
    ):
        count.total = topics.offsets
        as_read = _by_names_of_today(table) if reads_upstream else table
        up, out = _sources((upstream, output), topics, forms, as_read, view, went_back, decoding)
        if topics.since is not None and not reads_upstream:
            out = out[0], [FoldedOutput(source, view) for source in out[1]]
        checked = partial(Checker, table, view, up, out, findings, letters, forms[0].rows_before)
        checked = partial(checked, output_form=forms[1], reads_upstream=reads_upstream, from_now=from_now)
        checker = checked(has_epochs=barriers[1] is not None, initial=initial)
        report = checker.run(require_complete=require_complete)
    return replace(report, seconds=time.monotonic() - started, went_back=tuple(went_back))


def _parked_elsewhere(
    settings: KafkaSettings, upstream: str, output: str, siblings: Sequence[str]
) -> frozenset[RecordId]:
    """Records that other jobs parked, and those that were parked while the table had no job."""
    elsewhere = _listed(settings, [other for other in siblings if other != output])
    with suppress(EnvironmentProblem):  # without the right to see them
        elsewhere |= _listed(settings, [upstream])
    return elsewhere


def verify_job(
    settings: KafkaSettings,
    upstream: str,
    job: JobDefinition,
    table: TableSchema,
    *,
    upstream_format: BaseModel | None = None,
    upstream_barriers: str | None = None,
    progress: Progress | None = None,
    require_complete: bool = False,
    left_out: frozenset[RecordId] = frozenset(),
    siblings: Sequence[str] = (),
    initial: InitialTable | None = None,
) -> Report:
    """Check the output of a job by `verify_topics`. A form with schema ids needs its ids (`with_ids`)."""
    return verify_topics(
        settings,
        upstream,
        job.output,
        table,
        columns=job.columns,
        hash_key=hash_key_of(job),
        key=job.key,
        condition=None if job.filter is None else parse_filter(job.filter, table),
        progress=progress,
        require_complete=require_complete,
        left_out=left_out,
        siblings=siblings,
        formats=(upstream_format, RecordForm.of_output(job, table)),
        barriers=(upstream_barriers, job.barrier_topic),
        reads_upstream=job.scan.reads_upstream,
        from_now=job.from_now,
        initial=initial,
    )


def _by_names_of_today(table: TableSchema) -> TableSchema:
    """The table as a job that reads the topic has all of its records."""
    return replace(table, columns=tuple(replace(column, read_as=()) for column in table.columns))


def _sources(
    names: tuple[str, str],
    topics: TopicPair,
    forms: tuple[RecordForm, RecordForm],
    table: TableSchema,
    view: OutputView,
    went_back: list[str],
    decoding: Decoding,
) -> tuple[tuple[str, list[Source]], tuple[str, list[Source]]]:
    """Of upstream and output, by their names and in canonical form. `went_back` gets where logs began anew."""

    def on_went_back(partition: int, offset: int, found: WentBack) -> None:
        if len(went_back) < MOST_FINDINGS_KEPT:
            went_back.append(f"{Place(names[0], partition, offset)}: {found}")

    upstream = canonical(topics.upstream, forms[0], table.columns, table.key_columns, on_went_back, decoding)
    output = canonical(topics.output, forms[1], view.columns, view.key_columns, decoding=decoding)
    return (names[0], upstream), (names[1], output)


def _form(declared: BaseModel | RecordForm | None) -> RecordForm:
    if isinstance(declared, RecordForm):
        return declared
    return CHANGE_FORM if declared is None else RecordForm.of(declared)


@contextmanager
def _decoding(offsets: int) -> Iterator[Decoding]:
    """Other processes where there is enough to read."""
    if offsets < WORTH_PROCESSES:
        yield in_process
        return
    with Processes() as processes:
        yield processes.in_other_processes


class _Counter:
    """Adds up what was read, for `progress`."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._read, self.total = progress, 0, 0

    def __call__(self, offsets: int) -> None:
        self._read += offsets
        if self._progress is not None:
            self._progress(min(self._read, self.total), self.total)


def _refuse_same(upstream: str, output: str) -> None:
    if upstream == output:
        raise TopicError(
            Code.SAME_TOPIC,
            where=output,
            found="one topic as upstream and output",
            next_step="name the upstream and the job's output topic",
        )


def _dead_letters(
    settings: KafkaSettings,
    output: str,
    table: TableSchema,
    view: OutputView,
    findings: Findings,
    elsewhere: frozenset[RecordId],
    named: frozenset[RecordId],
) -> DeadLetters | None:
    """None where there are none, and none elsewhere: the service has never parked."""
    topic = output + DEAD_LETTERS_SUFFIX
    has_topic = partitions_of(settings, topic) is not None
    if not (has_topic or elsewhere):
        return None
    read = partial(read_letters, settings, topic) if has_topic else tuple
    return DeadLetters(table, findings, read, elsewhere, named, are_empty=view.is_masked)


def _listed(settings: KafkaSettings, outputs: Sequence[str]) -> frozenset[RecordId]:
    """The upstream records in the dead letters of some outputs."""
    topics = [output + DEAD_LETTERS_SUFFIX for output in outputs]
    letters = [
        letter
        for topic in topics
        if partitions_of(settings, topic) is not None
        for letter in read_letters(settings, topic)
    ]
    return frozenset(place for letter in letters if (place := letter.upstream_place) is not None)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """The fold is millions of small objects without cycles; walking them repeatedly takes a fifth longer."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
