"""The kinds of format that there are, by the name that the key `format` gives: the only place that lists them.

A kind that is added here is known to the configuration, to jobs and to their documentation. One for upstreams needs a
decoder in `streaming.source.formats.registry`, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.faults import Faults, brief
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import Format, OutputFormat
from schemas.table import nearest

DEFAULT = ChangeFormat()
"""Of an upstream and of a job that name none."""
UPSTREAM_FORMATS: dict[str, type[Format]] = {"change": ChangeFormat}
OUTPUT_FORMATS: dict[str, type[OutputFormat]] = {"change": ChangeFormat}

_AnyFormat = TypeVar("_AnyFormat", bound=Format)


def declare_format(
    kinds: Mapping[str, type[_AnyFormat]],
    declaration: Mapping[Any, Any],
    faults: Faults,
    *,
    beside: Collection[str],
    place: str = "",
) -> _AnyFormat | None:
    """The format that a declaration names by `format`, with its further keys; those `beside` it are someone else's.

    None if something is at fault: a kind that is not known (its own keys are not known then either), a key that is
    nobody's, or a value. `place` goes in front of each key in the faults.
    """
    kind = declaration.get("format", DEFAULT.format)
    model = kinds.get(kind) if isinstance(kind, str) else None
    if model is None:
        faults.add(f"{place}format {brief(kind)} is not one of: {', '.join(kinds)}")
    known = [*beside, *(model.model_fields if model else ["format"])]
    unknown = [key for key in declaration if key not in known]
    for key in unknown:
        faults.add(f"unknown key {brief(f'{place}{key}' if place else key)}{nearest(str(key), known)}")
    if model is None or unknown:
        return None
    try:
        return model.model_validate({key: value for key, value in declaration.items() if key not in beside})
    except ValidationError as error:
        for item in error.errors(include_url=False):
            key, text = ".".join(map(str, item["loc"])), item["msg"]
            faults.add(f"{place}{key} is {brief(item['input'])}: {text[0].lower()}{text[1:]}")
        return None


def format_keys(kinds: Mapping[str, type[Format]]) -> dict[str, tuple[str, str]]:
    """The keys that formats take: default (that of the first kind that has the key) and meaning, in Markdown."""
    keys = {
        "format": (
            f"`{DEFAULT.format}`",
            f"What records look like: {', '.join(f'`{kind}`' for kind in kinds)}.",
        )
    }
    for kind, model in kinds.items():
        for name, each in model.model_fields.items():
            keys.setdefault(name, (f"`{each.default}`", f"Of `{kind}`: {each.description}"))
    return keys
