"""A guess as the text of a configuration, with notes as comments."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable

from schemas.kinds.columns import IDENTIFIER, RESERVED_PREFIX
from streaming.inspect.guess import Guess
from streaming.inspect.samples import Field

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
    for field in fields:
        name = made = _column_name(field)
        number = 2
        while made.lower() in taken:
            made, number = f"{name[: _MAX_CHARACTERS - 8]}_{number}", number + 1
        taken.add(made.lower())
        names[field] = made
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
