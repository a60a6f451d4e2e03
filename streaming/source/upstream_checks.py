"""Checks that the upstream is still the topic that the state was made from, and that nothing of it is missing.

A topic that was deleted and made again has the old name and other records, and offsets that mean something else; so a
state is bound to the topic's id, which Kafka never uses twice. Partitions that were added hold no barriers, retention
and compaction take away what a replica is made of. Each of these is looked for before anything is touched, every few
seconds while the service runs, and when Spark gives up without a reason of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from schemas.errors import BackfillError, Code, EnvironmentProblem, StateError, TopicError
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.table import TableSchema
from state.initial.start import KEY as START
from state.initial.start import AnyStart
from state.journal import PATH as JOURNAL_PATH
from state.journal import Entry
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH
from state.storage import Storage, corrupt
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import Watermarks, admin, describe_topic, known_settings, watermarks
from streaming.source.gaps import Gaps
from streaming.source.retention import Margin, Retention

_COMPACTION_LAG, _LEAST_COMPACTION_LAG_MS = "min.compaction.lag.ms", 3_600_000
_WAIT_S = 2.0
"""The time, in seconds, to wait for an answer while the service runs: the asking thread also has to notice SIGTERM."""


@dataclass(frozen=True, slots=True)
class UpstreamIdentity:
    """The upstream that a state was made from."""

    topic: str
    id: str
    partitions: int

    @classmethod
    def of(cls, kafka: KafkaSettings, topic: str, *, client: AdminClient | None = None) -> Self:
        """The topic's current identity. Raises: TopicError(TOPIC_MISSING)."""
        found = describe_topic(kafka, topic, client=client)
        return cls(topic, found.id, found.partitions)

    def refuse_other(self, found: UpstreamIdentity, *, state: str) -> None:
        """Raises: StateError(STATE_FOREIGN); TopicError(TOPIC_REPLACED, PARTITIONS_CHANGED)."""
        if found.topic != self.topic:
            raise StateError(
                Code.STATE_FOREIGN, where=state, found=f"a state of topic {self.topic}", topic=found.topic
            )
        if found.id != self.id:
            raise TopicError(
                Code.TOPIC_REPLACED,
                where=self.topic,
                found=f"a topic with this name and another id ({found.id})",
                id=self.id,
            )
        if found.partitions != self.partitions:
            raise TopicError(
                Code.PARTITIONS_CHANGED,
                where=self.topic,
                found=f"{found.partitions} partitions",
                partitions=self.partitions,
                before="when the state was made",
            )


_IGNORED, _WIDTHS = "ignored_columns", "widths"


def binding(
    table: TableSchema,
    upstream: UpstreamIdentity,
    start: AnyStart | None = None,
    *,
    format_: UpstreamFormat | None = None,
    known: str | None = None,
) -> str:
    """The table, topic and start that a state is bound to, as JSON for the journal.

    Also, unless fields were ignored without a name since the state of the binding `known` was made, the names of those
    that were: they can't become columns.
    """
    bound = {} if start is None else start.bound()
    ignored = _ignored(format_)
    widths = sorted({*(() if known is None else table_widths(known)), len(table.columns)})
    if known is not None:
        earlier = json.loads(known).get(_IGNORED)
        ignored = None if ignored is None or earlier is None else sorted({*ignored, *earlier})
    more: dict[str, object] = {} if ignored is None else {_IGNORED: ignored}
    more |= {_WIDTHS: widths} if len(widths) > 1 else {}
    return json.dumps({**table.to_dict(), "upstream": asdict(upstream), **more, **bound})


def table_widths(known: str) -> Sequence[int]:
    """The numbers of columns that the table of a binding has had, the present one last."""
    bound = json.loads(known)
    widths: Sequence[int] = bound.get(_WIDTHS) or (len(bound["columns"]),)
    return widths


def _ignored(format_: UpstreamFormat | None) -> list[str] | None:
    """The names of the fields that are ignored; None where any may be."""
    if not isinstance(format_, RegistryFormat) or format_.on_new_column == "ignore":
        return None
    return sorted(format_.ignored_columns)


def refuse_foreign(
    known: str,
    table: TableSchema,
    upstream: UpstreamIdentity,
    *,
    state: str,
    has_plan: bool = True,
    is_read: bool = True,
) -> None:
    """Check that the state with the binding `known` fits this table and upstream.

    A state without a plan has read nothing, so the topic may have gained partitions since, unless it starts at offsets.
    The table may have further columns behind those of the state, and a column further names, if no record before can
    have had them; not until it `is_read` from its database, for chunks of its rows are there without them.
    Raises: StateError(SCHEMA_CHANGED, VNODE_LAYOUT_CHANGED, PK_CHANGED, COLUMN_WAS_IGNORED); as
    `UpstreamIdentity.refuse_other`.
    """
    before, declared = json.loads(known), table.to_dict()
    topic, ignored = before.pop("upstream", None), before.pop(_IGNORED, None)
    before.pop(_WIDTHS, None)
    start = before.pop(START, None)  # `streaming.service.initial.start` looks at it
    names = list(before["columns"])
    if is_read and list(table.column_names[: len(names)]) == names:
        own = {name: each for name, each in declared["columns"].items() if name in names}
        renamed = [name for name in names if _is_renamed(name, before["columns"][name], own[name])]
        declared["columns"] = {**own, **{name: before["columns"][name] for name in renamed}}
    changed = [key for key in {**declared, **before} if declared.get(key) != before.get(key)]
    if changed:
        code = Code.SCHEMA_CHANGED
        if {"vnode_count", "distribution_key", "distribution"} & set(changed):
            code = Code.VNODE_LAYOUT_CHANGED
        elif "primary_key" in changed:
            code = Code.PK_CHANGED
        differences = "; ".join(_difference(key, before.get(key), declared.get(key)) for key in changed)
        raise StateError(code, where=state, found=f"a state of another table: {differences}")
    _refuse_ignored(before["columns"], table, ignored, state)
    if topic is not None:
        bound = UpstreamIdentity(**topic)
        if not has_plan and start is None:
            bound = replace(bound, partitions=upstream.partitions)
        bound.refuse_other(upstream, state=state)


def _is_renamed(name: str, before: object, declared: object) -> bool:
    """True if a column has further names in records, and nothing else is different."""
    own, ours = _keys_of(name, before), _keys_of(name, declared)
    names, more = own.pop("field"), iter(ours.pop("field"))
    return own == ours and all(each in more for each in names)


def _keys_of(name: str, declared: object) -> dict[str, Any]:
    """The keys of a column's declaration; `field` is the list of its names."""
    keys = dict(declared) if isinstance(declared, dict) else {"type": declared}
    field = keys.get("field", name)
    return {**keys, "field": [field] if isinstance(field, str) else field}


def _refuse_ignored(
    before: Mapping[str, object], table: TableSchema, ignored: Sequence[str] | None, state: str
) -> None:
    """Raises: StateError(COLUMN_WAS_IGNORED) for a new column or name that earlier records may have had."""
    for column in table.columns:
        known = _keys_of(column.name, before[column.name])["field"] if column.name in before else ()
        new = [name for name in column.names_in_records if name not in known]
        if new and ignored is None:
            found = f"{new[0]!r} of column {column.name}, and records that were read while such fields were ignored"
        elif ignored is not None and (named := [name for name in new if name in ignored]):
            found = f"{named[0]!r} of column {column.name}, a field that was ignored"
        else:
            continue
        raise StateError(Code.COLUMN_WAS_IGNORED, where=state, found=found)


def _difference(key: str, before: object, declared: object) -> str:
    """A key of a table's declaration that has changed, in words; of the columns each that has."""
    if not (isinstance(before, dict) and isinstance(declared, dict)):
        return f"{key} was {json.dumps(before)}, is {json.dumps(declared)}"
    found = []
    for name in {**before, **declared}:
        if name not in before:
            found.append(f"column {name} is not in it")
        elif name not in declared:
            found.append(f"column {name} of it is not declared")
        elif before[name] != declared[name]:
            found.append(f"column {name} was {_column(before[name])}, is {_column(declared[name])}")
    return ", ".join(found)


def _column(declared: object) -> str:
    return declared if isinstance(declared, str) else json.dumps(declared)


def refuse_partial(storage: Storage, entry: Entry | None) -> None:
    """Check that all tables of the state exist: a missing one would be created anew, empty. `entry` is the journal's.

    The journal comes first and the others before the first plan, so a crash leaves no other gaps.
    Raises: StateError(STATE_TABLE_CORRUPT).
    """
    others = {path: storage.exists(path, "_delta_log") for path in (BASE_PATH, LOG_PATH, PROGRESS_PATH)}
    if entry is None and any(others.values()):
        missing = JOURNAL_PATH
    elif entry is not None and entry.plan is not None and not all(others.values()):
        missing = next(path for path, there in others.items() if not there)
    else:
        return
    raise corrupt(storage.uri(missing), "a state without this table")


class UpstreamGuard:
    """Checks one upstream of a running service. `state` is the state's location, for messages.

    `gaps` is what is known of its offsets; `look` adds to it.
    """

    def __init__(
        self, kafka: KafkaSettings, bound: UpstreamIdentity, state: str, gaps: Gaps | None = None
    ) -> None:
        self._kafka, self._bound, self._state = replace(kafka, wait_s=_WAIT_S), bound, state
        self._gaps = Gaps() if gaps is None else gaps
        self._client: AdminClient | None = None
        self._retention = Retention(self._kafka, bound.topic)

    def look(self, next_offsets: Sequence[int]) -> tuple[Watermarks, ...]:
        """Check identity and completeness from `next_offsets` on; returns the watermarks of each partition.

        For one thread. Raises: as `UpstreamIdentity.refuse_other` and `Gaps.refuse_lost`;
        TopicError(TOPIC_MISSING); EnvironmentProblem.
        """
        topic = self._bound.topic
        try:
            if self._client is None:
                self._client = admin(self._kafka)
            self._bound.refuse_other(
                UpstreamIdentity.of(self._kafka, topic, client=self._client), state=self._state
            )
            marks = watermarks(self._kafka, topic, client=self._client)
        except EnvironmentProblem:
            self._client = None
            raise
        self._gaps.refuse_lost(topic, marks, next_offsets)
        self._gaps.observe(self._kafka, topic, marks, next_offsets)
        return marks

    def margins(self, marks: Sequence[Watermarks], next_offsets: Sequence[int]) -> tuple[Margin, ...]:
        """The time for which unread records are kept, by partition (`Retention.look`)."""
        return self._retention.look(marks, self._gaps.first(next_offsets))

    def reason(self, problem: EnvironmentProblem, next_offsets: Sequence[int]) -> BackfillError:
        """The cause of a failure of Spark, if it is the upstream or its broker; else the problem itself."""
        if problem.code is not Code.SPARK_FAILED:
            return problem
        try:
            UpstreamGuard(self._kafka, self._bound, self._state, self._gaps).look(next_offsets)
        except BackfillError as reason:
            return reason
        return problem


def refuse_compacted(kafka: KafkaSettings, topic: str, upstream_format: UpstreamFormat) -> bool:
    """Check that compaction of the topic, if any, removes nothing that is needed.

    In a format whose records hold whole rows, compaction removes only what was superseded; but a batch may have to read
    its records again, hence the least lag. A topic whose settings can't be read is accepted; False then.
    Raises: TopicError(COMPACTED_INPUT, COMPACTION_LAG_TOO_SHORT).
    """
    settings = known_settings(kafka, topic)
    if settings is None:
        return False
    if "compact" in (policy := settings["cleanup.policy"]):
        if upstream_format.images is not Images.AFTER_ONLY:
            raise TopicError(Code.COMPACTED_INPUT, where=topic, found=f"cleanup.policy={policy}")
        _refuse_short_lag(topic, int(settings[_COMPACTION_LAG]))
    return True


def _refuse_short_lag(topic: str, lag_ms: int) -> None:
    if lag_ms < _LEAST_COMPACTION_LAG_MS:
        raise TopicError(
            Code.COMPACTION_LAG_TOO_SHORT,
            where=topic,
            found=f"a compacted topic with {_COMPACTION_LAG}={lag_ms}",
            least=f"{_COMPACTION_LAG}={_LEAST_COMPACTION_LAG_MS}",
        )
