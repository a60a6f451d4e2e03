"""How far the connector has come, asked about once a second while chunks wait for it: the slot first, then the topic.

A database or a broker that is away is waited for; any other error is raised by `run`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from schemas.errors import Code, EnvironmentProblem
from state.values.chunks import Chunk, Streamed
from streaming.core.chunk_events import Proofs
from streaming.postgres.session import Gone

ASK_EVERY_S = 1.0
LONGEST_PAUSE_S = 30.0
SLOT_IS_LATE_S = 120.0
"""Above a minute, for Kafka Connect commits offsets once a minute unless `offset.flush.interval.ms` is set."""

log = structlog.get_logger(__name__)


class SlotReader(Protocol):
    """The part of `ChunkReader` that reads the slot."""

    def confirmed_lsn(self) -> int:
        """As `ChunkReader.confirmed_lsn`."""

    def cut(self) -> None:
        """As `ChunkReader.cut`."""

    def close(self) -> None:
        """As `ChunkReader.close`."""


class SlotWatch:
    """Collects the proofs of one run. `waiting` are chunks that were read and not released.

    `ends` are the topic's, exclusive ones, those of open transactions included.
    """

    def __init__(
        self,
        reader: Callable[[], SlotReader],
        ends: Callable[[], Sequence[int]],
        waiting: Callable[[], Sequence[Chunk]],
        *,
        ask_every_s: float = ASK_EVERY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open, self._ends, self._waiting = reader, ends, waiting
        self._ask_every_s, self._now_s = ask_every_s, now_s
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._proofs = Proofs()
        self._reader: SlotReader | None = None
        self._away: str | None = None
        self._moved_s: float | None = None

    def run(self) -> None:
        """Until it is closed. Raises: what does not pass, as `ChunkReader.open` and `confirmed_lsn`; TopicError."""
        pause_s = self._ask_every_s
        try:
            while not self._closed.wait(pause_s):
                if self._waiting():
                    pause_s = self._asked(pause_s)
                else:
                    self._moved_s = None
        finally:
            self._drop_reader()

    def _asked(self, pause_s: float) -> float:
        """Ask once; how long to wait until the next time."""
        try:
            self._ask()
        except Gone as gone:
            self._is_away(gone.why)
            self._drop_reader()
        except EnvironmentProblem as problem:
            if problem.code is not Code.BROKER_UNREACHABLE:
                raise
            self._is_away(f"Kafka: {problem.found}")
        else:
            self._away = None
            return self._ask_every_s
        return min(pause_s * 2, LONGEST_PAUSE_S)

    def _ask(self) -> None:
        reader = self._reader
        if reader is None:
            reader = self._open()
            with self._lock:
                self._reader = reader
            if self._closed.is_set():
                return
        lsn = reader.confirmed_lsn()
        proof = Streamed(lsn, tuple(self._ends()))
        with self._lock:
            if proof.lsn > self._proofs.lsn or self._moved_s is None:
                self._moved_s = self._now_s()
            self._proofs.add(proof)
            self._proofs.keep_for(self._waiting())

    def _is_away(self, why: str) -> None:
        if self._away is None and not self._closed.is_set():
            log.warning("slot_not_asked", why=why)
        self._away = why

    def _drop_reader(self) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """End `run` soon."""
        self._closed.set()
        with self._lock:
            if self._reader is not None:
                self._reader.cut()

    def proofs(self) -> Sequence[Streamed]:
        """The proofs that may still matter."""
        with self._lock:
            return self._proofs.kept

    def trouble(self) -> str | None:
        """An unusual thing that it waits for, as text for an operator; None without."""
        if self._away is not None:
            return self._away
        with self._lock:
            lsn, moved_s = self._proofs.lsn, self._moved_s
        late_s = 0.0 if moved_s is None else self._now_s() - moved_s
        if late_s < SLOT_IS_LATE_S or not any(chunk.written_lsn > lsn for chunk in self._waiting()):
            return None
        return (
            f"the slot has confirmed nothing for {late_s:.0f} s: is the connector running, and has it "
            "heartbeat.interval.ms and heartbeat.action.query, without which a quiet database confirms nothing"
        )
