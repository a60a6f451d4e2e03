"""The sign of life of a state's owner: a file in the state's folder that is written anew every few seconds."""

from __future__ import annotations

import hashlib

from pyarrow import fs

from state.storage import Storage

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
    seen = storage.filesystem.get_file_info(storage.path(FOLDER, alive_file(owner)))
    if seen.type is not fs.FileType.File or seen.mtime_ns is None:
        return None
    return int(seen.mtime_ns) // 1_000_000
