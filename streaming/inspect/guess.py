"""Guesses the sections `upstream` and `table` of a configuration from a topic's records, as its text with comments.

Uncertain values get a note, which becomes a comment: a wrong guess without one would show late.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from schemas.avro.registered import Schemas
from schemas.avro.writer_schemas import Schema, WriterSchemaError, parsed
from schemas.codec.logs import CONNECTORS
from schemas.formats.upsert import DELETED_FIELD
from schemas.kinds.columns import IDENTIFIER, RESERVED_PREFIX
from streaming.inspect.declared import described, is_event, rows_of
from streaming.inspect.samples import NOTHING, Field, Sample, as_json, fields_of, schema_ids

_SIGNED = ("mysql", "mariadb")
"""Connectors that write an unsigned number of 64 bits as a signed one."""
_WRAPPED = '{type: "decimal(20,0)", unsigned: wrapped}'


@dataclass
class Guess:
    """Sections of a configuration. `notes` belong to the whole, `fields` have their own."""

    upstream: dict[str, str]
    fields: list[Field] = field(default_factory=list)
    primary_key: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unsure: dict[str, str] = field(default_factory=dict)
    """Keys of `upstream` that are a guess, and why."""


def guess(samples: Sequence[Sample], schemas: Schemas | None = None) -> Guess:
    """Guess from the first records of a topic. Every sample counts: a field that only the last one has is a column.

    `schemas` is the registry, for records that name their schemas. Raises: as `Schemas.get`.
    """
    data = [each for each in samples if not each.is_barrier]
    if len(data) < len(samples):
        note = "There are barriers in the topic: it is ours, in Avro without a schema. Ask its owner for the table."
        return Guess({"format": "change"}, notes=[note])
    values = [each.value for each in data if each.value]
    if not values:
        return Guess({}, notes=["No record with a value was found: nothing can be said of the topic yet."])
    if ids := schema_ids(values):
        return _registered(data, ids, schemas)
    rows = [each for each in map(as_json, values) if isinstance(each, dict)]
    if len(rows) < len(values):
        return Guess({}, notes=["Records that are no JSON objects, and in no format that is known here."])
    payloads = list(map(_payload, rows))
    if all(_is_event(each) for each in payloads if isinstance(each, dict)):
        return _debezium(data, rows)
    return _upsert(data, rows)


def _is_framed(record: object) -> bool:
    return isinstance(record, dict) and record.keys() == {"schema", "payload"}


def _payload(record: Any) -> Any:
    return record["payload"] if _is_framed(record) else record


def _fields_of_rows(rows: Sequence[dict[str, Any]]) -> list[Field]:
    """The fields of rows, by the newest schema among them, if any."""
    framed = [each["schema"] for each in rows if _is_framed(each) and each["schema"]]
    if framed and framed[-1].get("fields"):
        return described(framed[-1])
    return fields_of(each for each in map(_payload, rows) if isinstance(each, dict))


def _is_event(record: dict[str, Any]) -> bool:
    return {"op", "source"} <= record.keys() or ("ts_ms" in record and "op" not in record)


def _registered(data: Sequence[Sample], ids: list[int], schemas: Schemas | None) -> Guess:
    values = _known(ids, schemas)
    event = next(filter(is_event, values), None)
    made = Guess({"format": "upsert" if event is None else "debezium", "encoding": "avro-registry"})
    if not values:
        listed = ", ".join(map(str, ids[:5]))
        made.notes.append(
            f"Avro with a schema registry (ids {listed}): say --registry, or look there for the columns."
        )
        return made
    fields = rows_of(event or values[-1])
    made.fields = [each for each in fields if each.kind]
    if event is None and _is_keyless(data):
        made = _append("avro-registry", made.fields)
    made.notes += [f"Field {each.name} has a type that no column has." for each in fields if not each.kind]
    if event is not None:
        _note_wrapped(made, _connector_in(event))
    else:
        _take_deleted(made)
    keys = _known(schema_ids([each.key for each in data]), schemas)
    key = rows_of(keys[-1]) if keys else []
    made.primary_key = [each.name for each in key]
    known = {each.name for each in made.fields}
    made.fields = [*(each for each in key if each.name not in known), *made.fields]
    return made


def _known(ids: Sequence[int], schemas: Schemas | None) -> list[Schema]:
    """The schemas of these ids that can be parsed, in their order: a later id tends to be newer."""
    found = [] if schemas is None else [schemas.get(each) for each in ids]
    made: list[Schema] = []
    for schema in found:
        if schema is not None:
            with suppress(WriterSchemaError):
                made.append(parsed(schema))
    return made


def _debezium(data: Sequence[Sample], rows: Sequence[dict[str, Any]]) -> Guess:
    made = Guess({"format": "debezium"})
    events = list(map(_payload, rows))
    made.notes += [
        f"Positions of the connector {name} are not compared: events that it sends again are taken as they come."
        for name in _uncompared(events)
    ]
    frames = [each["schema"] for each in rows if _is_framed(each) and each["schema"]]
    framed = next((each for each in reversed(frames) if _has_after(each)), None)
    made.primary_key = _key_columns(data)
    seen = fields_of(
        each["after"] for each in events if isinstance(each, dict) and isinstance(each.get("after"), dict)
    )
    if framed is not None:
        made.fields = described(framed, "after")
        made.upstream |= {"time": "adaptive", "decimal": "precise"}
        negative = {each.name for each in seen if each.has_negative}
        for each in made.fields:
            each.has_negative = each.name in negative
    else:
        made.fields = [_with_unit(each, is_key=each.name in made.primary_key) for each in seen]
        made.upstream["decimal"] = "precise"
        made.unsure["decimal"] = "the connector's decimal.handling.mode: precise or string"
        made.notes.append(
            "Records have no schema in them: days, times and decimals look like numbers and texts."
        )
    _note_wrapped(made, _connector(events))
    return made


def _with_unit(field: Field, *, is_key: bool) -> Field:
    """Declare the unit of instants with their column: a record may have two or three, by their digits."""
    if field.kind in ("date", "timestamp"):
        field.units["time"] = "isostring"
    elif field.times_in is not None and not is_key:
        field.kind, field.units["time"] = "timestamp", field.times_in
        field.notes = [f"numbers that are times in {field.times_in}; bigint, if they are none"]
    return field


def _note_wrapped(made: Guess, connector: str) -> None:
    """Note that a negative number may be one beyond 2^63, which no record shows."""
    if connector not in _SIGNED:
        return
    of_bytes = made.upstream.get("encoding") == "avro-registry"
    for each in made.fields:
        if each.kind == "bigint" and (each.has_negative or of_bytes):
            each.notes.append(f"of BIGINT UNSIGNED: {_WRAPPED}")


def _connector(events: Sequence[Any]) -> str:
    sources = (each.get("source") for each in events if isinstance(each, dict))
    return next((str(each.get("connector")) for each in sources if isinstance(each, dict)), "")


def _connector_in(event: Schema) -> str:
    """The connector, by the name that Debezium gives the record of an event's source."""
    source = next((each["type"] for each in event["fields"] if each["name"] == "source"), None)
    name = source.get("name", "") if isinstance(source, dict) else ""
    return next((each for each in _SIGNED if f".{each}." in name), "")


def _take_deleted(made: Guess) -> None:
    """Declare the field by which Debezium's flattening marks deleted rows; it is no column."""
    if any(each.name == DELETED_FIELD for each in made.fields):
        made.fields = [each for each in made.fields if each.name != DELETED_FIELD]
        made.upstream["deleted_field"] = DELETED_FIELD


def _uncompared(events: Sequence[Any]) -> list[str]:
    """The connectors of these events whose positions are not compared."""
    sources = [each.get("source") for each in events if isinstance(each, dict)]
    names = [each.get("connector") for each in sources if isinstance(each, dict)]
    return sorted({json.dumps(each) for each in names if isinstance(each, str) and each not in CONNECTORS})


def _has_after(schema: dict[str, Any]) -> bool:
    return any(each.get("field") == "after" for each in schema.get("fields", ()))


def _is_keyless(data: Sequence[Sample]) -> bool:
    """True if there are rows without a key."""
    return any(each.value and not each.key for each in data)


def _append(encoding: str, fields: Sequence[Field]) -> Guess:
    made = Guess({"format": "append", "encoding": encoding}, list(fields))
    made.notes.append(
        "Records without a key: rows without identity, for jobs with read: topic and format: append alone."
    )
    return made


def _upsert(data: Sequence[Sample], rows: Sequence[dict[str, Any]]) -> Guess:
    fields = _fields_of_rows(rows)
    if _is_keyless(data):
        return _append("json", fields)
    made = Guess({"format": "upsert", "encoding": "json"}, fields)
    _take_deleted(made)
    keys = [_payload(as_json(each.key)) for each in data if each.key]
    if keys and all(isinstance(key, dict) for key in keys):
        made.primary_key = _key_columns(data)
        known = {each.name for each in made.fields}
        made.fields = [*(each for each in fields_of(keys) if each.name not in known), *made.fields]
        return made
    form = "json" if keys and NOTHING not in keys else "text"
    made.upstream["key"] = form
    pairs = [
        (_payload(as_json(each.key)) if form == "json" else _text(each.key), row)
        for each in data
        if each.value and isinstance(row := _payload(as_json(each.value)), dict)
    ]
    same = [each.name for each in made.fields if all(_is_same(key, row.get(each.name)) for key, row in pairs)]
    if same:
        made.primary_key = same[:1]
    else:
        kind = (
            fields_of({"key": key} for key in keys if key is not NOTHING)
            if form == "json"
            else [Field("key", "string")]
        )
        made.fields = [*(kind or [Field("key", "string")]), *made.fields]
        made.primary_key = ["key"]
        made.unsure["key"] = "no field of the value is equal to the key: the column `key` is the key itself"
    if len(same) > 1:
        made.unsure["key"] = f"these fields are equal to the key: {', '.join(same)}"
    return made


def _text(key: bytes | None) -> str:
    return "" if key is None else key.decode(errors="replace")


def _is_same(key: object, value: object) -> bool:
    return key == value or (isinstance(key, str) and key == json.dumps(value))


def _key_columns(data: Sequence[Sample]) -> list[str]:
    for each in data:
        key = as_json(each.key)
        if isinstance(key := _payload(key), dict):
            return list(key)
    return []


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def configuration(topic: str, bootstrap: str, guess: Guess, seen: str, registry: str | None = None) -> str:
    """YAML for `backfill run`, after the questions in its comments are answered."""
    lines = [f"# Written by backfill inspect, from {seen}. Look through it before you use it."]
    lines += [f"# {note}" for note in guess.notes]
    lines += ["kafka:", f"  bootstrap: {bootstrap}", "upstream:", f"  topic: {_name(topic)}"]
    for key, value in guess.upstream.items():
        lines.append(_commented(f"  {key}: {value}", guess.unsure.get(key)))
    if registry is not None and guess.upstream.get("encoding") == "avro-registry":
        lines += ["registry:", f"  url: {registry}"]
    # A topic's letters, with `./` before them, are a bare word in YAML.
    lines += [f"state: ./{topic}-state", "table:", f"  name: {_table_name(topic)}"]
    lines.append("  columns:" if guess.fields else "  columns: {}  # none could be determined")
    names = column_names(each.name for each in guess.fields)
    for each in guess.fields:
        declared = _declared(each, names[each.name])
        lines.append(_commented(f"    {_name(names[each.name])}: {declared}", "; ".join(each.notes)))
    if guess.upstream.get("format") == "append":
        return "\n".join([*lines, ""])
    key = ", ".join(_name(names.get(each, each)) for each in guess.primary_key)
    lines.append(_commented(f"  primary_key: [{key}]", None if key else "no key was found in the records"))
    return "\n".join([*lines, ""])


def _declared(field: Field, column: str) -> str:
    """The type of a column, or a mapping where its field has another name or unit."""
    kind = json.dumps(field.kind) if "," in field.kind else field.kind
    more = {"field": json.dumps(field.name, ensure_ascii=False)} if field.name != column else {}
    more |= field.units
    return (
        f"{{type: {kind}, {', '.join(f'{key}: {value}' for key, value in more.items())}}}" if more else kind
    )


def _table_name(topic: str) -> str:
    """The topic's name behind its last point, in the characters of a table's name."""
    return _name(re.sub(r"[^A-Za-z0-9_]", "_", topic.rpartition(".")[2]))


def _commented(line: str, note: str | None) -> str:
    return f"{line}  # {note}" if note else line


def _name(name: str) -> str:
    """A name in YAML: a bare word if possible, else in quotes."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name)


_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_MAX_CHARACTERS = 128


def column_names(fields: Iterable[str]) -> dict[str, str]:
    """A column name for each field: its own if valid, else made of its letters; no two differ in case alone."""
    names, taken = dict[str, str](), set[str]()
    for own in fields:
        name = made = _column_name(own)
        number = 2
        while made.lower() in taken:
            made, number = f"{name[: _MAX_CHARACTERS - 8]}_{number}", number + 1
        taken.add(made.lower())
        names[own] = made
    return names


def _column_name(field: str) -> str:
    if IDENTIFIER.fullmatch(field) and not field.lower().startswith(RESERVED_PREFIX):
        return field
    letters = unicodedata.normalize("NFKD", field.replace("ß", "ss"))
    plain = "".join(each for each in letters if not unicodedata.combining(each))
    name = _OTHER.sub("_", plain).strip("_")[:_MAX_CHARACTERS]
    if not name:
        return "column"
    return (
        name
        if IDENTIFIER.fullmatch(name) and not name.lower().startswith("bf_")
        else f"c_{name}"[:_MAX_CHARACTERS]
    )
