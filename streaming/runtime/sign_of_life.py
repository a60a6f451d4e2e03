"""The sign of life of a state's owner: a file in the state's folder that is written anew every few seconds."""

from __future__ import annotations

import hashlib

from state.small_files import written_ms
from state.storage import Storage, now_ms

FOLDER = "presence"
GONE_S = 20.0
"""Without a sign of life for this long an owner counts as gone; a start of the JVM does not stop the signs."""


def alive_file(owner: str) -> str:
    """The name of an owner's file."""
    return f"{short_hash(owner)}.alive"


def short_hash(text: str) -> str:
    """A name for a text of any length."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def last_seen_ms(storage: Storage, owner: str) -> int | None:
    """Unix time of an owner's last sign of life; None where it left none, as one that ended by itself."""
    return written_ms(storage, FOLDER, alive_file(owner))


def is_recent(seen_ms: int | None) -> bool:
    """True if an owner with this last sign of life counts as alive now."""
    return seen_ms is not None and now_ms() - seen_ms <= GONE_S * 1_000
