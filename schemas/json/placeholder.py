"""The placeholder of Debezium's PostgreSQL connector for a value that the database did not log, in every form.

Source: https://github.com/debezium/debezium, `UnchangedToastedPlaceholder` and `PostgresValueConverter`: a text stands
for itself, bytes are its UTF-8 (in hexadecimal or base64 by `binary.handling.mode`), an array has one element of text,
bytes or uuid, or as many numbers as it has bytes, and an hstore one pair.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache

from schemas.types import TypeName

UNAVAILABLE = "__debezium_unavailable_value"
"""The connector's default."""
_HEX = "hex:"


class Placeholder:
    """The forms of a setting `unavailable.value.placeholder`: a text, or `hex:` and bytes."""

    def __init__(self, setting: str) -> None:
        """Raises: ValueError for an empty setting, and for bytes that are not UTF-8."""
        self.bytes = (
            bytes.fromhex(setting.removeprefix(_HEX)) if setting.startswith(_HEX) else setting.encode()
        )
        self.text = self.bytes.decode()
        """The form for a text value, and for any type that has no form of its own."""
        if not self.text:
            raise ValueError("an empty text")
        self.base64 = base64.b64encode(self.bytes).decode()
        """The form for bytes in JSON."""
        self.texts = frozenset([self.text, *self._of_bytes(), *self._of_arrays(), self._pair()])
        """The forms for texts, and for values that are taken for the text of their JSON, without spaces."""

    def by_type(self, *, in_json: bool) -> Mapping[TypeName, frozenset[str] | frozenset[bytes]]:
        """The values that stand for one that did not change. In JSON bytes have one form, in Avro any of the texts."""
        of_bytes = [self.bytes] if in_json else [text.encode() for text in self.texts]
        return {TypeName.STRING: self.texts, TypeName.BINARY: frozenset(of_bytes)}

    def _of_bytes(self) -> Sequence[str]:
        url_safe = base64.urlsafe_b64encode(self.bytes).decode()
        return self.bytes.hex(), self.base64, url_safe, url_safe.rstrip("=")

    def _of_arrays(self) -> Sequence[str]:
        numbers = [byte - 256 if byte > 127 else byte for byte in self.bytes]  # as Java has them
        unscaled = [base64.b64encode(bytes([byte])).decode() for byte in self.bytes]
        arrays = [
            *([each] for each in (self.text, *self._of_bytes(), self._uuid())),
            numbers,
            list(map(float, numbers)),
            unscaled,
            [{"scale": 0, "value": each} for each in unscaled],
            [True] * len(numbers),
        ]
        return list(map(_compact, arrays))

    def _uuid(self) -> str:
        """A UUID of version 3, an MD5 in which six bits say so; there is nothing to be kept secret."""
        number = int.from_bytes(hashlib.md5(self.bytes, usedforsecurity=False).digest())
        number = number & ~(0xF << 76) | 3 << 76
        digits = f"{number & ~(3 << 62) | 2 << 62:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _pair(self) -> str:
        return _compact({self.text: self.text})


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@cache
def placeholder(setting: str = UNAVAILABLE) -> Placeholder:
    """A `Placeholder`, cached by its setting."""
    return Placeholder(setting)
