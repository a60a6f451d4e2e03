"""Small files of a state, each there as a whole or not at all: schemas, empty ranges, pins, pace, counts, presence.

None of them is needed for exactly once. A lost schema costs a request to the registry; without the empty ranges
DATA_LOST may be reported where nothing is lost; without a pace the configuration's counts; without its pin a version of
the replica is cleaned away; without counts those of jobs begin anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from schemas.avro.registered import WriterSchema
from state.storage import Storage, corrupt, now_ms
from state.values.aligned import ReplicaVersion

SCHEMAS_FOLDER = "schemas"
_EMPTY_RANGES = "upstream", "empty.json"
_PACE = "initial", "pace.json"
PRESENCE_FOLDER = "presence"
_COUNTS = PRESENCE_FOLDER, "sent.json"
PINS_FOLDER = "pins"
GONE_S = 20.0
"""Without a sign of life for this long an owner counts as gone; a start of the JVM does not stop the signs."""


class SchemaFiles:
    """The schemas of the upstream's registry that a state has kept, by id: `schemas/<id>.json`, one file each.

    The schema of an id never changes, so a file is written once. It is on the disk before anything is decoded with it:
    a restart needs no registry for schemas that were used before.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> tuple[WriterSchema, ...]:
        """All schemas, in the order of their ids. Damaged files are ignored."""
        infos = self._storage.listed(SCHEMAS_FOLDER)
        found = [self._read(info.base_name) for info in infos if info.extension == "json"]
        return tuple(sorted((each for each in found if each is not None), key=lambda schema: schema.id))

    def _read(self, name: str) -> WriterSchema | None:
        data = self._storage.read_file(SCHEMAS_FOLDER, name)
        try:
            kept = json.loads(data)
            schema = WriterSchema(kept["id"], kept["text"], kept["kind"], tuple(kept["references"]))
        except (ValueError, KeyError, TypeError):
            return None
        return schema if name == f"{schema.id}.json" else None

    def write(self, schema: WriterSchema) -> None:
        """Keep one; it is on the disk when this returns."""
        self._storage.write_file(json.dumps(asdict(schema)).encode(), SCHEMAS_FOLDER, f"{schema.id}.json")


@dataclass(frozen=True, slots=True)
class EmptyRange:
    """No committed record is in [first, end) of a partition; `is_full`: one is, or was, at the end."""

    first: int
    end: int
    is_full: bool = False


class EmptyRanges:
    """Offsets of the upstream that held no record when they were read, at most one range for each partition.

    The records at an offset never change, so a range holds for good. It is kept because the log does not keep it: once
    retention has deleted these offsets, the marker of a transaction can't be distinguished from a lost record.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> dict[int, EmptyRange]:
        """By partition; nothing for a file that is missing or damaged."""
        if not self._storage.exists(*_EMPTY_RANGES):
            return {}
        data = self._storage.read_file(*_EMPTY_RANGES)
        with suppress(ValueError, TypeError, AttributeError):
            return {int(number): EmptyRange(*each) for number, each in json.loads(data).items()}
        return {}

    def write(self, ranges: Mapping[int, EmptyRange]) -> None:
        """Keep these in place of the ranges kept before."""
        kept = {number: (each.first, each.end, each.is_full) for number, each in ranges.items()}
        self._storage.write_file(json.dumps(kept).encode(), *_EMPTY_RANGES)


@dataclass(frozen=True, slots=True)
class ReadPace:
    """Rows per second of all readers of the database together: None for any number, 0 for none.

    Set by a command or the API while the service runs.
    """

    rate_limit: int | None = None
    paused: bool = False


def kept_pace(storage: Storage) -> ReadPace | None:
    """The pace that was set last; None if none was, or if it can't be read."""
    try:
        raw = json.loads(storage.read_file(*_PACE))
        limit, paused = raw["rate_limit"], raw["paused"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_limit = limit is None or (isinstance(limit, int) and limit >= 0)
    return ReadPace(limit, paused is True) if is_limit else None


def keep_pace(storage: Storage, pace: ReadPace) -> None:
    """Keep a pace for the next start. Raises: OSError."""
    storage.write_file(json.dumps(asdict(pace)).encode(), *_PACE)


@dataclass(frozen=True, slots=True)
class SentCount:
    """The records that a job has sent since a Unix time. `start` is the job's: another one may have its name later."""

    start: int
    since: float
    sent: int


def kept_counts(storage: Storage) -> dict[str, SentCount]:
    """The counts that were kept last, by job; none for a file that is missing or damaged."""
    try:
        raw = json.loads(storage.read_file(*_COUNTS))
        return {
            name: SentCount(int(each["start"]), float(each["since"]), int(each["sent"]))
            for name, each in raw.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def keep_counts(storage: Storage, counts: Mapping[str, SentCount]) -> None:
    """Keep counts for the next start. Raises: OSError."""
    kept = {name: asdict(each) for name, each in counts.items()}
    storage.write_file(json.dumps(kept).encode(), *_COUNTS)


class TablePins:
    """Versions of the replica that stay readable until they are unpinned, by barrier: `pins/<epoch>.json`.

    Commands write and delete them; what cleans the state reads them.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> dict[int, ReplicaVersion]:
        """By epoch, in their order. Raises: StateError(STATE_TABLE_CORRUPT) for a damaged one."""
        found = {}
        for info in self._storage.listed(PINS_FOLDER):
            epoch, _, rest = info.base_name.partition(".")
            if epoch.isdigit() and rest == "json":
                found[int(epoch)] = self._read(info.base_name)
        return dict(sorted(found.items()))

    def _read(self, name: str) -> ReplicaVersion:
        try:
            return ReplicaVersion(**json.loads(self._storage.read_file(PINS_FOLDER, name)))
        except (ValueError, TypeError) as error:
            # Cleaning must not take what it may name.
            raise corrupt(self._storage.uri(PINS_FOLDER, name), "a pin that can't be read") from error

    def pin(self, epoch: int, version: ReplicaVersion) -> None:
        """Keep a version; it is on the disk when this returns."""
        self._storage.write_file(json.dumps(asdict(version)).encode(), PINS_FOLDER, f"{epoch}.json")

    def unpin(self, epoch: int) -> bool:
        """Let a version go; False if none is pinned there."""
        try:
            self._storage.filesystem.delete_file(self._storage.path(PINS_FOLDER, f"{epoch}.json"))
        except FileNotFoundError:
            return False
        return True


def written_ms(storage: Storage, *parts: str) -> int | None:
    """The Unix milliseconds at which a file was written, by the storage's clock; None without the file."""
    written_ns = storage.filesystem.get_file_info(storage.path(*parts)).mtime_ns
    return None if written_ns is None else int(written_ns) // 1_000_000


def alive_file(owner: str) -> str:
    """The name of an owner's file."""
    return f"{short_hash(owner)}.alive"


def short_hash(text: str) -> str:
    """A name for a text of any length."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def last_seen_ms(storage: Storage, owner: str) -> int | None:
    """Unix time of an owner's last sign of life; None where it left none, as one that ended by itself."""
    return written_ms(storage, PRESENCE_FOLDER, alive_file(owner))


def is_recent(seen_ms: int | None) -> bool:
    """True if an owner with this last sign of life counts as alive now."""
    return seen_ms is not None and now_ms() - seen_ms <= GONE_S * 1_000
