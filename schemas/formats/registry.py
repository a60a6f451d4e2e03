"""The kinds of format that there are, by the name that the key `format` gives: the only module that lists them.

A kind that is added here is known to the configuration, to jobs and to their documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from schemas.faults import Faults
from schemas.formats.append import AppendFormat, AppendOutput
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.protocol import Format, OutputFormat, UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.kinds.configs import declare_kind

DEFAULT = ChangeFormat()
"""The format of an upstream and of a job that name none."""
UPSTREAM_FORMATS: dict[str, type[UpstreamFormat]] = {
    "change": ChangeFormat,
    "upsert": UpsertFormat,
    "debezium": DebeziumFormat,
    "append": AppendFormat,
}
OUTPUT_FORMATS: dict[str, type[OutputFormat]] = {
    "change": ChangeFormat,
    "upsert": UpsertOutput,
    "debezium": DebeziumOutput,
    "append": AppendOutput,
}

_AnyFormat = TypeVar("_AnyFormat", bound=Format)


def declare_format(
    kinds: Mapping[str, type[_AnyFormat]],
    declaration: Mapping[Any, Any],
    faults: Faults,
    *,
    beside: Collection[str],
    place: str = "",
) -> _AnyFormat | None:
    """The format that a declaration names by `format`, or the default; see `declare_kind`."""
    return declare_kind(
        kinds, declaration, faults, tag="format", default=DEFAULT.format, beside=beside, place=place
    )


def default_text(value: object) -> str:
    """The default of a key, in Markdown."""
    if value in (None, (), [], {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def format_keys(kinds: Mapping[str, type[Format]]) -> dict[str, tuple[str, str]]:
    """The keys that formats take: default (that of the first kind that has the key) and meaning, in Markdown."""
    keys = {
        "format": (
            f"`{DEFAULT.format}`",
            f"What records look like: {', '.join(f'`{kind}`' for kind in kinds)}.",
        )
    }
    found: dict[str, dict[str, list[str]]] = {}
    for kind, model in kinds.items():
        for name, each in model.model_fields.items():
            if name != "format":
                keys.setdefault(name, (default_text(each.default), ""))
                found.setdefault(name, {}).setdefault(str(each.description), []).append(f"`{kind}`")
    for name, meanings in found.items():
        texts = (f"Of {', '.join(of)}: {meaning}" for meaning, of in meanings.items())
        keys[name] = (keys[name][0], " ".join(texts))
    return keys
