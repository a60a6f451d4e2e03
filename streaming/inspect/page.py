"""A guess as the text of a configuration, with what is not sure as comments."""

from __future__ import annotations

import json
import re

from streaming.inspect.guess import Guess

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def configuration(topic: str, bootstrap: str, guess: Guess, seen: str, registry: str | None = None) -> str:
    """YAML that `backfill run` takes once what its comments ask was answered."""
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
    for each in guess.fields:
        kind = json.dumps(each.kind) if "," in each.kind else each.kind
        lines.append(_commented(f"    {_name(each.name)}: {kind}", "; ".join(each.notes)))
    if guess.upstream.get("format") == "append":
        return "\n".join([*lines, ""])
    key = ", ".join(map(_name, guess.primary_key))
    lines.append(_commented(f"  primary_key: [{key}]", None if key else "no key was found in the records"))
    return "\n".join([*lines, ""])


def _table_name(topic: str) -> str:
    """What stands behind the last point, in the letters that a table's name may have."""
    return _name(re.sub(r"[^A-Za-z0-9_]", "_", topic.rpartition(".")[2]))


def _commented(line: str, note: str | None) -> str:
    return f"{line}  # {note}" if note else line


def _name(name: str) -> str:
    """As YAML takes it: letters of a bare word, else in quotes."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name)
