"""Schemas of the upstream's registry, by id: `schemas/<id>.json`, one file each.

What an id names never changes, so a file is written once and holds for good. It is there, on the disk, before anything
is decoded by it: a restart needs no registry for what it has met before. Losing one costs a question to the registry.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from schemas.avro.registered import WriterSchema
from state.storage import Storage

FOLDER = "schemas"


class SchemaFiles:
    """The schemas that a state has kept."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> tuple[WriterSchema, ...]:
        """All schemas, in the order of their ids. Damaged files are ignored."""
        infos = self._storage.listed(FOLDER)
        found = [self._read(info.path) for info in infos if info.extension == "json"]
        return tuple(sorted((each for each in found if each is not None), key=lambda schema: schema.id))

    def _read(self, path: str) -> WriterSchema | None:
        with self._storage.filesystem.open_input_stream(path) as file:
            data = file.read()
        try:
            kept = json.loads(data)
            schema = WriterSchema(kept["id"], kept["text"], kept["kind"], tuple(kept["references"]))
        except (ValueError, KeyError, TypeError):
            return None
        return schema if path.rsplit("/", 1)[-1] == f"{schema.id}.json" else None

    def write(self, schema: WriterSchema) -> None:
        """Keep one. It is there as a whole or not at all, and on the disk when this returns."""
        self._storage.write_file(json.dumps(asdict(schema)).encode(), FOLDER, f"{schema.id}.json")
