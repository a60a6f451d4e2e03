"""Rows by key in a local folder: what a lane's vnodes held as of a barrier.

LMDB, because several worker processes may have the same lane one after another, or two at once: opening takes a
fraction of a millisecond, readers have a snapshot of their own, and a process that is killed leaves the last commit.
Nothing is synced: after a failure of the machine the store is made anew, which another boot id gives away. Pages are
written, not mapped for writing: a full disk is an error then, where a store to a mapped page would end the process.
Source: https://lmdb.readthedocs.io/.

    key      the encoded primary key; its digest where that is too long for LMDB
    value    the row as an INSERT of `schemas.avro`, nothing where the key is known to have no row
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import lmdb
import numpy as np
import pyarrow as pa

from schemas.avro.columnar import encode_inserts
from schemas.codec.envelopes import ChangeDecoder
from schemas.table import TableSchema
from streaming.lane.before.folder import explained, is_full, make_root, own_folder, problem_of
from streaming.lane.before.normal import Stored, Written

_MAP_BYTES = tuple(1 << shift for shift in (40, 36, 33, 30, 28))
"""Sizes of address space, not of disk: the file grows as it is filled. The first that the process may have is used."""
_LOCK = "making.lock"
_MAX_KEY_BYTES = 480
_META, _ROWS = b"meta", b"rows"
_EPOCH, _ORIGIN = b"epoch", b"boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Values = list[bytes | None]
"""Values by key: the stored row; b"" for a key known to have no row; None for an unknown key."""


View = Callable[[pa.Array], Values]
"""A store's rows at one moment: the values of keys, in their order; keys must be distinct."""


class RowStore(Protocol):
    """The rows of some vnodes as of a barrier: a cache, rebuilt from the replica when lost. For one thread."""

    @property
    def epoch(self) -> int | None:
        """The barrier as of which it holds the rows; None while it holds none, or not all."""

    def write(self, rows: Written, *, after: int | None, epoch: int) -> bool:
        """Apply the changes between the barriers `after` and `epoch`, and be at `epoch`.

        False if the store was not at `after`: nothing is written then.
        """

    def clear(self) -> None:
        """Remove all rows; there is no epoch until the next `write`."""

    def fill(self, rows: Written) -> None:
        """Add rows to a store without an epoch, or to one that overlays another; `gone` keys are stored as absent."""

    def at(self, epoch: int | None) -> AbstractContextManager[View | None]:
        """A snapshot of the rows as of a barrier (None: no epoch); None if the store is at another barrier."""

    def alone(self) -> AbstractContextManager[None]:
        """A lock between processes: no other one rebuilds the store during the block."""

    def close(self) -> None:
        """Release it; other processes may go on using it. Idempotent."""


def local_store(name: str, table: TableSchema, rows_folder: str | None = None) -> RowStore:
    """A store below the machine's folder for rows (see `folder`): `<state>/<first vnode>-<end>`.

    A new one replaces those that have some of its vnodes: those of other lanes, before a rescale.
    Raises: EnvironmentProblem, as `own_folder`.
    """
    folder = make_root(rows_folder) / name
    own_folder(folder.parent)
    if not folder.exists():
        _remove_overlapping(folder)
    return LocalStore(folder, table)


def _remove_overlapping(folder: Path) -> None:
    first, end = map(int, folder.name.split("-"))
    for other in folder.parent.glob("*-*"):
        other_first, other_end = map(int, other.name.split("-"))
        if other != folder and other_first < end and first < other_end:
            shutil.rmtree(other, ignore_errors=True)


class LocalStore(RowStore):
    """A store in one folder. A write is a transaction; what can't be written raises an EnvironmentProblem."""

    def __init__(self, folder: Path, table: TableSchema) -> None:
        """Open it; one that was filled before the machine was started, or with other columns, is emptied.

        Raises: as `own_folder`.
        """
        self._folder, self._table, self._origin = folder, table, _origin(table)
        own_folder(folder)
        with explained(folder):
            try:
                origin = self._open()
            except lmdb.Error as error:  # no store, or a torn one
                if is_full(error, folder) or isinstance(error, lmdb.MemoryError):
                    raise
                origin = None
            if origin != self._origin:
                self._give_back()
                own_folder(folder)
                self._open()

    def _open(self) -> bytes:
        """Open what is there, or an empty store; its `_origin`. Raises: lmdb.Error."""
        self._env = _environment(self._folder)
        # Goes with the store, should the folder be deleted.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.fdopen(os.open(self._folder / _LOCK, flags, 0o600), "r+")
        self._meta, self._rows = self._env.open_db(_META), self._env.open_db(_ROWS)
        with self._env.begin() as txn:
            origin = txn.get(_ORIGIN, db=self._meta)
        if origin is None:
            with self._env.begin(write=True) as txn:
                txn.put(_ORIGIN, self._origin, db=self._meta, overwrite=False)
        return self._origin if origin is None else bytes(origin)

    def _give_back(self) -> None:
        """Free what the store takes on the disk."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        if "_env" in self.__dict__:
            self._env.close()
        if "_lock" in self.__dict__:
            self._lock.close()

    @property
    def epoch(self) -> int | None:
        with self._env.begin() as txn:
            return self._epoch_in(txn)

    def _epoch_in(self, txn: lmdb.Transaction) -> int | None:
        found = txn.get(_EPOCH, db=self._meta)
        return None if found is None else int(found)

    def write(self, rows: Written, *, after: int | None, epoch: int) -> bool:
        pairs = self._pairs(rows)
        with explained(self._folder), self._env.begin(write=True) as txn:
            if self._epoch_in(txn) != after:
                return False
            self._put(txn, pairs)
            for key in sorted(_short(rows.gone)):
                txn.delete(key, db=self._rows)
            txn.put(_EPOCH, str(epoch).encode(), db=self._meta)
        return True

    def clear(self) -> None:
        with explained(self._folder), self._env.begin(write=True) as txn:
            txn.drop(self._rows, delete=False)
            txn.delete(_EPOCH, db=self._meta)

    def fill(self, rows: Written) -> None:
        """Put rows into it. If the disk is full, the space that the store took is freed for others."""
        pairs = sorted([*self._pairs(rows), *((key, b"") for key in _short(rows.gone))])
        with explained(self._folder):
            try:
                with self._env.begin(write=True) as txn:
                    self._put(txn, pairs)
            except lmdb.Error as error:
                if not is_full(error, self._folder):
                    raise
                problem = problem_of(self._folder, error)
                self._give_back()
                raise problem from error

    def _pairs(self, rows: Written) -> list[tuple[bytes, bytes]]:
        """The pairs in key order, in which LMDB takes them fastest."""
        values = encode_inserts(self._table.columns, rows.columns).to_pylist()
        return sorted(zip(_short(rows.keys), values, strict=True))

    def _put(self, txn: lmdb.Transaction, pairs: list[tuple[bytes, bytes]]) -> None:
        with txn.cursor(db=self._rows) as cursor:
            cursor.putmulti(pairs)

    @contextmanager
    def at(self, epoch: int | None) -> Iterator[View | None]:

        def values(keys: pa.Array) -> Values:
            wanted = _short(keys)
            with txn.cursor(db=self._rows) as cursor:
                found: dict[Any, Any] = dict(cursor.getmulti(sorted(wanted)))
            return [found.get(key) for key in wanted]

        with self._env.begin() as txn:
            yield values if self._epoch_in(txn) == epoch else None

    @contextmanager
    def alone(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if not self._lock.closed:  # as where the disk was full: that has released it
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def __len__(self) -> int:
        with self._env.begin() as txn:
            return int(txn.stat(self._rows)["entries"])


def _environment(folder: Path) -> lmdb.Environment:
    """LMDB's, with as much address space as the process may have. Raises: lmdb.Error."""
    for map_bytes in _MAP_BYTES:
        try:
            return lmdb.open(
                str(folder), map_size=map_bytes, max_dbs=2, mode=0o600, sync=False, metasync=False
            )
        except lmdb.MemoryError:
            if map_bytes == _MAP_BYTES[-1]:
                raise
    raise AssertionError("unreachable")


def decoded(values: Sequence[bytes | None], table: TableSchema) -> Stored:
    """The rows of values that a store gave, read as whole columns."""
    present = np.array([bool(value) for value in values], dtype=np.bool_)
    there = pa.array([value for value in values if value], pa.binary())
    found = ChangeDecoder(table.columns, table.key_columns).decode(there, there)
    assert not found.errors, "the store has what was encoded here"
    places = pa.array(np.cumsum(present) - 1, mask=~present)
    return Stored(present, tuple(column.take(places) for column in found.after.flatten()))


def _short(keys: pa.Array) -> list[bytes]:
    found: list[bytes] = keys.to_pylist()
    return [key if len(key) <= _MAX_KEY_BYTES else blake2b(key).digest() for key in found]


def _origin(table: TableSchema) -> bytes:
    """A text that differs after another start of the machine, and for other columns, in whose form rows are stored."""
    columns = ",".join(f"{column.name} {column.type}" for column in table.columns)
    boot = _BOOT_ID.read_bytes().strip() if _BOOT_ID.exists() else b"unknown"
    return boot + b" " + blake2b(columns.encode(), digest_size=16).hexdigest().encode()
