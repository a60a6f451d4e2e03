"""How fast a table is read from its database, as it was set by a command or the API while the service ran.

It is no part of what makes batches exactly once: where it is lost, the configuration's counts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyarrow import fs

from state.storage import Storage

_FOLDER, _FILE = "initial", "pace.json"


@dataclass(frozen=True, slots=True)
class ReadPace:
    """Rows per second of all readers together: None for any number, 0 for none."""

    rate_limit: int | None = None
    paused: bool = False


def kept_pace(storage: Storage) -> ReadPace | None:
    """The pace that was set last; None if none was, or if it can't be read."""
    path = storage.path(_FOLDER, _FILE)
    if storage.filesystem.get_file_info(path).type is not fs.FileType.File:
        return None
    try:
        with storage.filesystem.open_input_stream(path) as opened:
            raw = json.loads(bytes(opened.read()))
        limit, paused = raw["rate_limit"], raw["paused"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_limit = limit is None or (isinstance(limit, int) and limit >= 0)
    return ReadPace(limit, paused is True) if is_limit else None


def keep_pace(storage: Storage, pace: ReadPace) -> None:
    """Keep a pace for the next start. Raises: OSError."""
    storage.filesystem.create_dir(storage.path(_FOLDER), recursive=True)
    with storage.filesystem.open_output_stream(storage.path(_FOLDER, _FILE)) as out:
        out.write(json.dumps(asdict(pace)).encode())
    storage.sync(_FOLDER)
