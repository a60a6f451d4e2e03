"""The last end of a service, in the note of its journal: the kind, the time, and the error.

It counts until the next batch is finished: `epoch` is the last finished one at that time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from schemas.errors import BackfillError, Code


class EndKind(StrEnum):
    """The ways in which a service ends its work; the values are those of the journal and the API."""

    SUSPENDED = "suspended"
    """A fault of the table: the process stays, without batches."""
    FAILED = "failed"
    """An error ended the process."""
    STOPPED = "stopped"
    """Asked to end."""
    SILENT = "silent"
    """No word of an end, and no sign of life: it was killed, or its machine is gone."""


_WORDS = {
    EndKind.SUSPENDED: "was suspended",
    EndKind.FAILED: "ended by an error",
    EndKind.STOPPED: "was stopped",
    EndKind.SILENT: "ended without a word (killed?)",
}


@dataclass(frozen=True, slots=True)
class FaultReport:
    """The texts of an error, as data."""

    code: Code
    where: str | None
    found: str
    expected: str
    next_step: str

    @classmethod
    def from_error(cls, error: BackfillError) -> FaultReport:
        """The texts of an error."""
        return cls(error.code, **error.texts)

    def to_error(self) -> BackfillError:
        """The error again, without its class: for those that show it."""
        texts = asdict(self)
        return BackfillError(texts.pop("code"), **texts)

    def __str__(self) -> str:
        return str(self.to_error())


@dataclass(frozen=True, slots=True)
class LastEnd:
    """The end of a service's work. Times are Unix milliseconds.

    `times` counts the ends by this same fault with no batch finished between them, the first of which was at
    `since_ms`. `joined` are codes of faults that came up while it was suspended. `requests_from` is the first offset of
    the control topic that a suspended service has not acted on.
    """

    kind: EndKind
    owner: str
    at_ms: int
    since_ms: int
    epoch: int
    fault: FaultReport | None = None
    times: int = 1
    joined: tuple[Code, ...] = ()
    requests_from: int = 0

    @property
    def is_suspended(self) -> bool:
        """True for a table that waits for a decision."""
        return self.kind is EndKind.SUSPENDED

    @property
    def words(self) -> str:
        """Words for the kind of end."""
        return _WORDS[self.kind]

    def counts(self, epoch: int) -> bool:
        """True as long as no batch was finished since, `epoch` being the last finished one."""
        return epoch == self.epoch

    def repeats(self, before: LastEnd | None) -> bool:
        """True if the end before was by the same fault, and no batch was finished since."""
        if before is None or before.fault is None or self.fault is None or not before.counts(self.epoch):
            return False
        return (before.fault.code, before.fault.where) == (self.fault.code, self.fault.where)

    def after(self, before: LastEnd | None) -> LastEnd:
        """This end, counted behind the one before."""
        if before is None or not self.repeats(before):
            return self
        return replace(self, since_ms=before.since_ms, times=before.times + 1, joined=before.joined)

    def to_json(self) -> str:
        """One line of JSON, which `from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LastEnd:
        """Read what `to_json` gave, in this version or a later one."""
        raw: dict[str, Any] = {name: value for name, value in json.loads(text).items() if name in _NAMES}
        fault = raw.pop("fault")
        if fault is not None:
            fault = FaultReport(**{**fault, "code": Code(fault["code"])})
        joined = tuple(map(Code, raw.pop("joined")))
        return cls(**{**raw, "kind": EndKind(raw["kind"])}, fault=fault, joined=joined)


_NAMES = frozenset(LastEnd.__dataclass_fields__)
