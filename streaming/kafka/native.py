"""Whole Arrow columns of keys and values for librdkafka: one C call a column, no Python per row.

confluent-kafka's `produce` costs about 2 us of Python a record. librdkafka has `rd_kafka_produce_batch`, which
takes an array of message structs; numpy fills that array from the Arrow offsets. It has no place for headers: records
with headers go by `rd_kafka_produceva`, one C call a record, which takes an array of tagged values (`rd_kafka_vu_t`);
numpy lays those of all records out, and `map` makes the calls.

The producer itself, its transactions and its errors stay confluent-kafka's: only the handle is borrowed. Its location
is known for one layout of objects, that of the versions below; nothing is read from memory elsewhere, and
`open_columns` takes the public way (`RecordProducer`) then. Message structs: librdkafka's rdkafka.h,
`rd_kafka_message_t`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from itertools import repeat
from operator import length_hint
from pathlib import Path
from types import MappingProxyType
from typing import Any

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog
from confluent_kafka import KafkaException, Producer

_log = structlog.get_logger(__name__)
_COPY, _BY_PARTITION = 0x2, 0x8
_RKT, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 2, 3, 4, 5, 7, 9
"""Tags of the values of a record, `rd_kafka_vtype_t`."""
_ANY_PARTITION = -1
_QUEUE_FULL = -184
_OBJECT_HEADER_BYTES = 16
_KNOWN_VERSIONS = frozenset({"2.16.1"})
"""Of confluent-kafka: those whose producer holds librdkafka's handle right behind the object's header."""
_VERSION = version("confluent-kafka")
_POLL_S = 0.005
_METADATA_S = 15.0
_CHUNK_RECORDS = 10_000
"""Records that are laid out, or taken out of their columns, at a time."""
NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})

# All fields, those that stay zero too: numpy copies no bytes between fields, and what is in `private` is taken for a
# pointer when the delivery is reported.
_MESSAGE = np.dtype(
    [
        ("err", np.int32),
        ("topic", np.uint64),
        ("partition", np.int32),
        ("payload", np.uint64),
        ("len", np.uint64),
        ("key", np.uint64),
        ("key_len", np.uint64),
        ("offset", np.int64),
        ("private", np.uint64),
    ],
    align=True,
)

_TAGGED = np.dtype(
    [
        ("tag", np.int32),
        ("pad", np.int32),
        ("a", np.uint64),
        ("b", np.uint64),
        ("c", np.uint64),
        ("rest", "V40"),
    ]
)
"""A tag and a union of 64 bytes, of which three words are used: pointer, pointer or size, size."""

_P = ctypes.c_void_p
_FUNCTIONS: Mapping[str, tuple[Any, list[Any]]] = {
    "rd_kafka_last_error": (ctypes.c_int, []),
    "rd_kafka_name": (ctypes.c_char_p, [_P]),
    "rd_kafka_topic_new": (_P, [_P, ctypes.c_char_p, _P]),
    "rd_kafka_topic_destroy": (None, [_P]),
    "rd_kafka_metadata": (ctypes.c_int, [_P, ctypes.c_int, _P, ctypes.POINTER(_P), ctypes.c_int]),
    "rd_kafka_metadata_destroy": (None, [_P]),
    "rd_kafka_produce_batch": (ctypes.c_int, [_P, ctypes.c_int32, ctypes.c_int, _P, ctypes.c_int]),
    "rd_kafka_produceva": (_P, [_P, _P, ctypes.c_size_t]),
    "rd_kafka_error_code": (ctypes.c_int, [_P]),
    "rd_kafka_error_destroy": (None, [_P]),
}
"""The used functions of librdkafka: their result and arguments."""


@cache
def _load() -> ctypes.CDLL:
    """Raises: OSError, AttributeError where there is no such library, or it lacks a function."""
    package = Path(confluent_kafka.__file__).parent
    bundled = sorted(package.parent.glob("confluent_kafka.libs/librdkafka*.so*"))
    library = ctypes.CDLL(str(bundled[0])) if bundled else ctypes.CDLL(None)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def open_columns(producer: Producer, client_id: str) -> ColumnProducer | RecordProducer:
    """The fastest available producer of columns. `client_id` is the producer's `client.id`.

    Close it before the producer.
    """
    handle = _handle(producer, client_id)
    if handle is None:
        _warn(_VERSION)
        return RecordProducer(producer)
    return ColumnProducer(producer, handle)


def _handle(producer: Producer, client_id: str) -> int | None:
    """Librdkafka's handle, None unless its location is certain."""
    # An interpreter without a global lock has a larger header.
    as_known = sys.implementation.name == "cpython" and object.__basicsize__ == _OBJECT_HEADER_BYTES
    if not as_known or _VERSION not in _KNOWN_VERSIONS:
        return None
    try:
        library = _load()
    except (OSError, AttributeError):
        return None
    handle = ctypes.c_void_p.from_address(id(producer) + _OBJECT_HEADER_BYTES).value
    name = library.rd_kafka_name(handle) if handle else b""
    return handle if name.startswith(client_id.encode() + b"#producer-") else None


@cache
def _warn(found: str) -> None:
    _log.warning("columns_go_by_batches", confluent_kafka=found, known=sorted(_KNOWN_VERSIONS))


class ColumnProducer:
    """Sends columns to the topics of one transactional producer. For one thread; close it before the producer."""

    def __init__(self, producer: Producer, handle: int) -> None:
        """`handle` is librdkafka's, see `open_columns`."""
        self._producer, self._handle, self._library = producer, handle, _load()
        self._topics: dict[str, int] = {}
        self._expected = frozenset[str]()

    def expect(self, topics: Iterable[str]) -> None:
        """Announce topics of later `send`s: their leaders are looked up in one request, at the first."""
        self._expected |= frozenset(topics)

    def send(
        self,
        topic: str,
        partitions: npt.NDArray[np.int32] | None,
        keys: pa.Array,
        values: pa.Array,
        headers: Mapping[str, bytes] = NO_HEADERS,
    ) -> None:
        """Queue n records, order kept within a partition. Blocks while the queue is full.

        `partitions[i]` is that of record i; None leaves it to the producer's partitioner. `keys` and `values` are
        binary arrays of n, with nulls for records without a key or value; each record gets the `headers`, which takes
        half a microsecond. Delivery errors surface at the commit alone: the producer's callback is not called.
        Raises: KafkaException when a record is refused for another reason than a full queue.
        """
        messages = np.zeros(len(values), dtype=_MESSAGE)
        messages["partition"] = _ANY_PARTITION if partitions is None else partitions
        messages["payload"], messages["len"] = _pointers(values)
        messages["key"], messages["key_len"] = _pointers(keys)
        handle = self._topic(topic)
        if headers:
            self._send_one_by_one(_HeaderRecords(handle, messages, headers))
        else:
            self._send_at_once(handle, messages, _COPY if partitions is None else _COPY | _BY_PARTITION)
        self._producer.poll(0)

    def _send_one_by_one(self, records: _HeaderRecords) -> None:
        for code in records.queue(self._library, self._handle):
            if code != _QUEUE_FULL:
                raise KafkaException(confluent_kafka.KafkaError(code))
            self._producer.poll(_POLL_S)

    def _send_at_once(self, handle: int, messages: npt.NDArray[np.void], how: int) -> None:
        count = len(messages)
        while count:
            queued = self._library.rd_kafka_produce_batch(handle, -1, how, messages.ctypes.data, count)
            if queued == count:
                break
            failed = messages["err"][:count] != 0
            other = failed & (messages["err"][:count] != _QUEUE_FULL)
            if other.any():
                raise KafkaException(confluent_kafka.KafkaError(int(messages["err"][:count][other][0])))
            # A refused record must not be overtaken by a later one of its partition. librdkafka refuses all that
            # follow the first one that found the queue full (rdkafka_msg.c, `all_err`); `_from_first_refused` checks.
            first = int(np.argmax(failed))
            messages = _from_first_refused(messages[:count], first, failed)
            count = len(messages)
            self._producer.poll(_POLL_S)

    def close(self) -> None:
        """Give the topic handles back. The producer must still be alive."""
        for handle in self._topics.values():
            self._library.rd_kafka_topic_destroy(handle)
        self._topics.clear()

    def _topic(self, topic: str) -> int:
        if topic not in self._topics:
            for name in sorted({topic} | self._expected - self._topics.keys()):
                self._topics[name] = self._new_topic(name)
            # Records for a topic whose leaders are not known yet wait in a queue "without partition", and
            # rd_kafka_produce_batch takes that one into the transaction, which the broker refuses.
            self._ask_for_leaders()
        return self._topics[topic]

    def _new_topic(self, topic: str) -> int:
        handle: int | None = self._library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        if not handle:
            raise KafkaException(confluent_kafka.KafkaError(self._library.rd_kafka_last_error()))
        return handle

    def _ask_for_leaders(self) -> None:
        """Look up the leaders of all topics with a handle; `list_topics` can do it for one topic, or for all."""
        found = ctypes.c_void_p()
        timeout_ms = int(_METADATA_S * 1_000)
        code = self._library.rd_kafka_metadata(self._handle, 0, None, ctypes.byref(found), timeout_ms)
        if code:
            raise KafkaException(confluent_kafka.KafkaError(code))
        self._library.rd_kafka_metadata_destroy(found)


class RecordProducer:
    """Sends columns as `ColumnProducer`, record by record through confluent-kafka's public interface."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._known_topics: set[str] = set()

    def expect(self, topics: Iterable[str]) -> None:
        """Does nothing: leaders are looked up topic by topic here, see `ColumnProducer.expect`."""

    def send(
        self,
        topic: str,
        partitions: npt.NDArray[np.int32] | None,
        keys: pa.Array,
        values: pa.Array,
        headers: Mapping[str, bytes] = NO_HEADERS,
    ) -> None:
        """See `ColumnProducer.send`."""
        if topic not in self._known_topics:
            # As `ColumnProducer`: leaders have to be known.
            self._producer.list_topics(topic, timeout=_METADATA_S)
            self._known_topics.add(topic)
        more: dict[str, Any] = {"headers": dict(headers)} if headers else {}
        for start in range(0, len(values), _CHUNK_RECORDS):
            part = slice(start, start + _CHUNK_RECORDS)
            numbers = repeat(_ANY_PARTITION) if partitions is None else partitions[part].tolist()
            for number, key, value in zip(
                numbers, keys[part].to_pylist(), values[part].to_pylist(), strict=False
            ):
                while True:
                    try:
                        self._producer.produce(topic, value, key, number, **more)
                        break
                    except BufferError:
                        self._producer.poll(_POLL_S)
        self._producer.poll(0)

    def close(self) -> None:
        """Does nothing: no record is held back."""


class _HeaderRecords:
    """n records of one topic, with the same headers. Their memory must stay alive until all are queued."""

    def __init__(self, topic: int, messages: npt.NDArray[np.void], headers: Mapping[str, bytes]) -> None:
        """`messages` has partition, payload, len, key and key_len of each; `topic` is a handle."""
        self._messages = messages
        self._held = [(ctypes.c_char_p(name.encode()), value) for name, value in headers.items()]
        self._constant = self._constants(topic)

    def _constants(self, topic: int) -> npt.NDArray[np.void]:
        fields = np.zeros(5 + len(self._held), dtype=_TAGGED)
        fields["tag"][:5] = _RKT, _FLAGS, _PARTITION, _VALUE, _KEY
        fields["tag"][5:] = _HEADER
        fields["a"][:2] = topic, _COPY
        for field, (name, value) in zip(fields[5:], self._held, strict=True):
            field["a"] = ctypes.cast(name, ctypes.c_void_p).value
            field["b"] = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value
            field["c"] = len(value)
        return fields

    def queue(self, library: ctypes.CDLL, handle: int) -> Iterator[int]:
        """Queue all, in order; yields librdkafka's code for each refusal, and tries that record again when resumed."""
        for start in range(0, len(self._messages), _CHUNK_RECORDS):
            yield from _queue(library, handle, self._laid_out(start, start + _CHUNK_RECORDS))

    def _laid_out(self, start: int, stop: int) -> npt.NDArray[np.void]:
        messages = self._messages[start:stop]
        fields = np.tile(self._constant, (len(messages), 1))
        fields["a"][:, 2] = messages["partition"].astype(np.uint32)
        fields["a"][:, 3], fields["b"][:, 3] = messages["payload"], messages["len"]
        fields["a"][:, 4], fields["b"][:, 4] = messages["key"], messages["key_len"]
        return fields


def _queue(library: ctypes.CDLL, handle: int, fields: npt.NDArray[np.void]) -> Iterator[int]:
    count, width = fields.shape
    size, base, first = width * _TAGGED.itemsize, fields.ctypes.data, 0
    produce: Any = library.rd_kafka_produceva
    while first < count:
        places = iter(range(base + first * size, base + count * size, size))
        # Stops at the first record that is refused; none may be overtaken by a later one of its partition.
        refused = next(filter(None, map(produce, repeat(handle), places, repeat(width))), None)
        if refused is None:
            return
        first = count - length_hint(places) - 1
        code = int(library.rd_kafka_error_code(refused))
        library.rd_kafka_error_destroy(refused)
        yield code


def _pointers(array: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Address and length of each value of a binary array, 0 and 0 of a null."""
    _, offsets_buffer, data = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype=width)[array.offset : array.offset + len(array) + 1]
    base = data.address if data is not None else 0
    places, lengths = offsets[:-1].astype(np.uint64) + np.uint64(base), np.diff(offsets).astype(np.uint64)
    if array.null_count:
        present = array.is_valid().to_numpy(zero_copy_only=False)
        return places * present, lengths * present
    return places, lengths


def _from_first_refused(
    messages: npt.NDArray[np.void], first: int, failed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.void]:
    if not failed[first:].all():
        raise KafkaException(confluent_kafka.KafkaError(_QUEUE_FULL))
    rest = messages[first:].copy()
    rest["err"] = 0
    return rest
