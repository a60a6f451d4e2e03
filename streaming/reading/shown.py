"""Values as text for people and their tools."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal


def plain(value: object) -> object:
    """A value as JSON can say it: numbers and booleans as such, the rest as text, bytes in base64."""
    match value:
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
