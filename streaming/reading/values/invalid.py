"""The error for a record that is none of its form, and its way into an `InputError`."""

from __future__ import annotations

from schemas.errors import Code, InputError

_NAMED_BY_COLUMN = frozenset(
    {Code.VALUE_OUT_OF_RANGE, Code.BAD_ENCODING, Code.JSON_MALFORMED, Code.CHANGE_MALFORMED}
)


class InvalidRecordError(ValueError):
    """A record that its form forbids. `code` is None for the general code of the form; the reason holds no value."""

    def __init__(self, reason: str, code: Code | None = None, column: str | None = None) -> None:
        self.code, self.column = code, column
        super().__init__(reason)

    def as_input(self, general: Code, what: str, where: str | None = None) -> InputError:
        """The error for a person. `what` names the bytes, as `a value`; `general` is the code where there is none."""
        code, column = self.code or general, f" in column {self.column}" if self.column else ""
        values = {"column": self.column} if self.column else {}
        expected = None if values or code not in _NAMED_BY_COLUMN else "a record in the form that is declared"
        return InputError(code, where=where, found=f"{what} with {self}{column}", expected=expected, **values)
