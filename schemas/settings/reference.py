"""`docs/configuration.md`, written from what checks a configuration.

`python -m schemas.settings.reference > docs/configuration.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.faults import fields_by_key, section_in
from schemas.formats.registry import UPSTREAM_FORMATS, default_text, format_keys
from schemas.settings.config import ServiceConfig
from schemas.settings.job_keys import KEYS as JOB_KEYS
from schemas.settings.limits import size_text
from schemas.table import KEYS as TABLE_KEYS
from schemas.topics import UPSTREAM_KEYS

Rows = Mapping[str, tuple[str, str]]
"""Default and meaning of each key, in Markdown."""

_HEAD = """# Configuration

[One file](contract.md#configuration), YAML or JSON. A key without a default has to be there. In a value, `${NAME}` is a
variable of the environment, an error where it is not set, and `$$` is `$`; in quotes it is text. This page is written
by `python -m schemas.settings.reference`.
"""
_JOBS_TAIL = """
A job's definition is fixed once it has been created; its limit is not.
"""
_NONE = {"lanes": "cores, up to 4", "ca_file": "the system's", "master": "this machine", "hosts": "its own"}
_TITLES = {
    "initial.delta": "Where the table starts",
    "initial.postgres": "A start from PostgreSQL",
    "kafka": "Kafka",
    "kafka.oauth": "Tokens for Kafka",
    "limits": "Limits",
    "http": "Page, API and metrics",
    "spark": "Spark",
    "registry": "Schema registry",
    "registry.oauth": "Tokens for the schema registry",
}


def reference() -> str:
    """The page."""
    below = {*_TITLES, "table", "jobs"}
    own = {name: row for name, row in _rows(ServiceConfig).items() if name not in below}
    parts = [_HEAD, *_section("The service", own)]
    parts += _section("The upstream", {**UPSTREAM_KEYS, **format_keys(UPSTREAM_FORMATS)}, "upstream.")
    parts += _section("The table", TABLE_KEYS, "table.")
    parts += [*_section("Jobs", JOB_KEYS, "jobs[]."), _JOBS_TAIL]
    for name, model in sections().items():
        parts += _section(_TITLES[name], _rows(model), f"{name}.")
    return "".join(parts)


def sections() -> dict[str, type[BaseModel]]:
    """The models of the sections by their keys."""
    return {name: section_in(ServiceConfig, name.split(".")) for name in _TITLES}


def _rows(model: type[BaseModel]) -> Rows:
    return {
        name: ("" if field.is_required() else _default(name, field), str(field.description))
        for name, field in fields_by_key(model).items()
    }


def _default(name: str, field: FieldInfo) -> str:
    value = field.get_default()
    if value is not None and name.endswith("_bytes"):
        value = size_text(value)
    text = default_text(value)
    return _NONE.get(name, text) if text == "none" else text


def _section(title: str, rows: Rows, prefix: str = "") -> Iterator[str]:
    yield f"\n## {title}\n\n| Key | Default | Meaning |\n| --- | --- | --- |\n"
    for name, (default, meaning) in rows.items():
        yield f"| `{prefix}{name}` | {default} | {meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
