"""Signs of life of a state's owner, so that instances of two supervisors do not fence each other for ever.

An instance that starts takes the state over, and the one before ends by FENCED. A supervisor that starts that one again
would have it take the state back, and so on. So an instance that is fenced leaves a note with its name and its
successor's; started again under the same name it finds the note, and waits as long as that successor lives. It is a
standby then: when the successor's sign of life stops, it goes on.

    presence/<owner>.alive     a number that rises every few seconds while the owner's process runs
    presence/<name>.fenced     the owner that took over from the instance of this name

A person who starts an instance on a terminal is asked first (`refuse_living`).

The name is the host's and the control group's: that of a container, a pod or a systemd unit stays when it is started
again, and a replacement has another. A note is old after ten minutes, for a supervisor starts again sooner.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
from pyarrow import fs

from schemas.errors import Code, ConfigError, Fenced
from state.journal import Journal
from state.small_files import GONE_S, PRESENCE_FOLDER, alive_file, short_hash
from state.storage import Storage
from streaming.runtime.timing import repeated

BEAT_S = 5.0
_NOTE_IS_OLD_S = 600.0
_LOOK_S = 0.5

log = structlog.get_logger()


def instance_name() -> str:
    """This instance's name, the same when its supervisor starts it again."""
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        group = ""
    return f"{socket.gethostname()} {group}"


class Presence:
    """Signs of life and notes in one state folder."""

    def __init__(self, storage: Storage, *, gone_s: float = GONE_S, beat_s: float = BEAT_S) -> None:
        self._storage, self._gone_s, self._beat_s = storage, gone_s, beat_s

    @contextmanager
    def shown(self, owner: str) -> Iterator[None]:
        """Signs of life while the block runs; none is left behind it."""
        numbers = itertools.count(1)
        self._write(alive_file(owner), "0")

        def beat() -> bool:
            with suppress(OSError):  # of a storage that is away for a moment
                self._write(alive_file(owner), str(next(numbers)))
            return True

        try:
            with repeated(beat, self._beat_s, name="presence"):
                yield
        finally:
            self._remove(alive_file(owner))

    def note_fenced(self, name: str, successor: str) -> None:
        """Leave a note that the instance `name` was taken over from."""
        self._write(_fenced(name), json.dumps({"successor": successor, "at_s": time.time()}))

    def refuse_living(self, owner: str, is_stopped: Callable[[], bool]) -> None:
        """Look for two beats at an owner's sign of life. Raises: ConfigError(USAGE) if it rises."""
        first, until_s = self._beats(owner), time.monotonic() + 2 * self._beat_s
        if first is not None:
            log.info("starting", step=f"looking whether {owner} lives")
        while first is not None and time.monotonic() < until_s and not is_stopped():
            time.sleep(min(_LOOK_S, self._beat_s))
            if (self._beats(owner) or 0) > first:
                raise ConfigError(
                    Code.USAGE,
                    where=self._storage.root,
                    found=f"a service that has this state, and lives: {owner}",
                    expected="a state that no other service works on",
                    next_step="look at that one, or end it and take the state over with --take-over",
                )

    def _beats(self, owner: str) -> int | None:
        text = self._read(alive_file(owner))
        return int(text) if text and text.isdigit() else None

    def await_turn(self, name: str, owner: str, is_stopped: Callable[[], bool]) -> bool:
        """Wait while `owner`, which took over from the instance `name`, lives. False: stopped meanwhile.

        True at once without a note of that.
        """
        if not self.is_fenced_by(name, owner):
            return True
        last, since = self._read(alive_file(owner)), time.monotonic()
        if last is not None:
            log.info("standby", owner=owner, reason="it took the state over from this instance, and lives")
        while last is not None and time.monotonic() - since < self._gone_s:
            if is_stopped():
                return False
            time.sleep(_LOOK_S)
            seen = self._read(alive_file(owner))
            if seen != last:
                last, since = seen, time.monotonic()
                self.note_fenced(name, owner)  # for another start of this instance
        self._remove(_fenced(name))
        return True

    def is_fenced_by(self, name: str, owner: str) -> bool:
        """True if `owner` took over from the instance `name` a short while ago."""
        try:
            note = json.loads(self._read(_fenced(name)) or "null")
            return note["successor"] == owner and 0 <= time.time() - float(note["at_s"]) < _NOTE_IS_OLD_S
        except (ValueError, TypeError, KeyError):
            return False

    def _write(self, file: str, text: str) -> None:
        self._storage.filesystem.create_dir(self._storage.path(PRESENCE_FOLDER))
        with self._storage.filesystem.open_output_stream(self._storage.path(PRESENCE_FOLDER, file)) as out:
            out.write(text.encode())

    def _read(self, file: str) -> str | None:
        path = self._storage.path(PRESENCE_FOLDER, file)
        if self._storage.filesystem.get_file_info(path).type is not fs.FileType.File:
            return None
        try:
            with self._storage.filesystem.open_input_stream(path) as opened:
                return bytes(opened.read()).decode()
        except OSError:
            return None

    def _remove(self, file: str) -> None:
        with suppress(OSError):
            self._storage.filesystem.delete_file(self._storage.path(PRESENCE_FOLDER, file))


@contextmanager
def noting_fenced(presence: Presence, journal: Journal) -> Iterator[None]:
    """Leave a note when the block ends because another instance took the state over."""
    try:
        yield
    except Fenced:
        successor = journal.successor()
        if successor is not None:
            with suppress(OSError):
                presence.note_fenced(instance_name(), successor)
        raise


def _fenced(name: str) -> str:
    return f"{short_hash(name)}.fenced"
