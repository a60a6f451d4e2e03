"""Lanes that get one thing wrong: fencing, looking, or the transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from schemas.errors import OutcomeUnknown
from schemas.records import Barrier, Op
from state.replica import Replica, ReplicaFiles
from state.values.aligned import ReplicaVersion
from streaming.lane.before.normal import Written
from streaming.protocol.batches import Batches
from streaming.sink.columns import EncodedRecords, OutputChanges
from streaming.sink.kafka_reader import LastBarrier
from streaming.sink.kafka_writer import KafkaWriter, _Filled
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import Mark
from streaming.verify.history import TopicEntry
from tests.simulation.broker import Broker, Producer
from tests.simulation.broker_answers import last_of
from tests.simulation.rows import SimulatedStore
from tests.simulation.storage import MemoryStorage


class _OtherProducer(Broker):
    """A broker whose lanes send by another kind of producer."""

    producer_type: type[Producer]

    def writer(self, transactional_id: str) -> KafkaWriter:
        usual = self.producer(transactional_id)
        return KafkaWriter(self.producer_type(self, self.scheduler, transactional_id, usual.epoch))


class _OtherWriter(Broker):
    writer_type: type[KafkaWriter]

    def writer(self, transactional_id: str) -> KafkaWriter:
        return self.writer_type(self.producer(transactional_id))


# fencing ---------------------------------------------------------------------------------------------------


class KeepsProducers(Broker):
    """One producer for the life of a process, also after a commit whose outcome is unknown."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._kept: dict[str, Producer] = {}

    def writer(self, transactional_id: str) -> KafkaWriter:
        if transactional_id not in self._kept:
            self._kept[transactional_id] = self.producer(transactional_id)
        return KafkaWriter(self._kept[transactional_id])


class _LateInit(Producer):
    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.epoch = self._broker.producer(self._name).epoch
        with super().transaction():
            yield


class InitsBehindLooks(Broker):
    """The producer is made when it is needed, which is after the looks."""

    def writer(self, transactional_id: str) -> KafkaWriter:
        return KafkaWriter(_LateInit(self, self.scheduler, transactional_id, -1))


class SeesNoSuccessor(MemoryStorage):
    """Neither driver nor lanes look whether the journal has gone on."""

    _looked_for = -1

    def exists(self, *parts: str) -> bool:
        """The next commit is never there; one's own, looked for behind it, is."""
        before, number = self._looked_for, int(parts[-1].removesuffix(".json"))
        object.__setattr__(self, "_looked_for", number)
        return number == before - 1


# looking ---------------------------------------------------------------------------------------------------


class _NeverSent(KafkaWriter):
    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        self._filled = {
            place: _Filled(logs, 0, [0] * len(logs)) for place, logs in self._logs(before).items()
        }
        return False


class LooksAtNoTail(_OtherWriter):
    writer_type = _NeverSent


class _KnownEnds(KafkaWriter):
    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        logs = self._logs(before)
        known = {place: (*logs[place], known_ends[place][-1]) for place in logs if place in known_ends}
        return super().already_sent(before, epoch, known)


class BelievesKnownEnds(_OtherWriter):
    """A partition that the last batch has known is not looked at again."""

    writer_type = _KnownEnds


class _Uncommitted(Producer):
    def last_barrier(self, place: SinkPartition) -> LastBarrier | None:
        super().last_barrier(place)
        log = self._broker.topics.logs[place.barriers or place.topic, place.partition]
        last = next((record for record in reversed(log) if record.barrier is not None), None)
        return None if last is None else last_of(TopicEntry(0, last.key, last.value, last.barrier), place)


class LooksAtUncommitted(_OtherProducer):
    """The tails are read without regard to transactions."""

    producer_type = _Uncommitted


# the transaction -------------------------------------------------------------------------------------------


class _Hopeful(Producer):
    @contextmanager
    def transaction(self) -> Iterator[None]:
        with suppress(OutcomeUnknown), super().transaction():
            yield


class TakesUnknownForDone(_OtherProducer):
    producer_type = _Hopeful


class _Halves(Producer):
    _has_rows = False

    def send(self, topic: str, records: EncodedRecords, headers: Mapping[str, bytes]) -> None:
        super().send(topic, records, headers)
        self._has_rows = True

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        if self._has_rows:
            self._has_rows = False
            self._commit()
            self._begin()
        super().send_barrier(topic, partition, barrier)


class CommitsHalves(_OtherProducer):
    """Rows in one transaction, the barrier behind them in the next."""

    producer_type = _Halves


class _Apart(Producer):
    _has_rows = False

    def send(self, topic: str, records: EncodedRecords, headers: Mapping[str, bytes]) -> None:
        super().send(topic, records, headers)
        self._has_rows = True

    def send_barrier_beside(self, topic: str, partition: int, barrier: Barrier, end: int) -> None:
        if self._has_rows:
            self._has_rows = False
            self._commit()
            self._begin()
        super().send_barrier_beside(topic, partition, barrier, end)


class CommitsBarriersApart(_OtherProducer):
    """The barrier beside the data comes in another transaction than the data."""

    producer_type = _Apart


class _EndsBefore(KafkaWriter):
    def _send(self, output: Output, records: EncodedRecords, barrier: Barrier) -> None:
        ends = {place: filled.end for place, filled in self._filled.items()}
        super()._send(output, records, barrier)
        for place, filled in self._filled.items():
            filled.end = ends[place]


class EndsBeforeTheData(_OtherWriter):
    """A barrier beside the data says where its interval begins, not where it ends."""

    writer_type = _EndsBefore


class _KeepsAborted(Producer):
    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._begin()
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001  # whatever it is, it is no reason here
            failure = error
        self._commit()
        if failure is not None:
            raise failure


class CommitsFaultyParts(_OtherProducer):
    """Commits records that were sent before a later part turned out to be invalid."""

    producer_type = _KeepsAborted


# Rows before -----------------------------------------------------------------------------------------------


class FollowsNothing(SimulatedStore):
    """It says that it took in what it did not."""

    def write(self, rows: Written, *, after: int | None, epoch: int) -> bool:
        nothing = replace(
            rows, keys=rows.keys[:0], columns=tuple(c[:0] for c in rows.columns), gone=rows.gone[:0]
        )
        return super().write(nothing, after=after, epoch=epoch)


class _SinceFiles(ReplicaFiles):
    def since(self, epoch: int) -> ReplicaFiles | None:
        found = super().since(epoch)
        return found and replace(found, compacted_epoch=self.compacted_epoch)


class _GivesWholeFiles(Replica):
    def files(self, version: ReplicaVersion) -> ReplicaFiles:
        found = super().files(version)
        return _SinceFiles(found.compacted_epoch, found.base, found.log)


class FollowsWholeFiles(Batches):
    """A store that is behind takes all rows of a merged file, those from before the barrier that it is at as well."""

    replica_type = _GivesWholeFiles


# keys that UPDATEs move ------------------------------------------------------------------------------------


class _InsertsFirst(KafkaWriter):
    def changes(self, run: OutputChanges) -> None:
        second = np.flatnonzero(np.diff(run.whole.rows, prepend=np.int64(-1)) == 0)
        ops = run.whole.ops.copy()
        ops[second - 1], ops[second] = Op.INSERT, Op.DELETE
        super().changes(replace(run, whole=replace(run.whole, ops=ops)))


class InsertsMovedKeysFirst(_OtherWriter):
    """The DELETE of a moved key comes second, which at the end leaves the same rows."""

    writer_type = _InsertsFirst
