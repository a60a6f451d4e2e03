"""Named points between effects, at which a test has the service killed, held up or made to fail.

    BACKFILL_FAILPOINT=name[@count]:kill|sleep|raise

- `count` is the batch, counted from the start of the process, in which it happens (default 1); `last` is the batch
  that reads a job to its end. A point outside of batches counts how often it was come to.
- `kill` ends the whole process tree with SIGKILL, Spark and its workers too; `sleep` holds this thread for two
  minutes, time to act on the process from outside; `raise` is an unforeseen error.

When it happens a file `failpoint-<name>` appears in the folder of the logs. Without the variable a point costs one
comparison. Lanes run in other processes, some of them later ones, so the driver counts for them and passes each batch's
lanes what to do (`for_lanes`, `obey`).
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import psutil

from schemas.errors import Code, ConfigError
from streaming.runtime.paths import log_folder

VARIABLE = "BACKFILL_FAILPOINT"
SLEEP_S = 120.0
LAST = -1


class Failpoint(StrEnum):
    """The failpoints, in the order in which a batch reaches them; `meaning` has the effect before each."""

    meaning: str

    def __new__(cls, name: str, meaning: str = "") -> Self:
        """A point by its name in the variable."""
        point = str.__new__(cls, name)
        point._value_, point.meaning = name, meaning
        return point

    TAKEN_OVER = "taken-over", "the journal names this instance; no other instance was fenced yet"
    FENCED = "fenced", "transactional ids of the instance before are taken"
    COPIED = "copied", "some parts of the table that the state starts from are in it"
    PLANNED = "planned", "a plan was made and is not in the journal"
    JOURNALED = "journaled", "the plan is in the journal; nothing was sent"
    TOPICS_OPENED = "topics-opened", "topics of jobs that start are there; nothing was sent"
    LANE_READ = "lane-read", "a lane has its changes"
    LANE_OPENED = "lane-opened", "init_transactions is done"
    LANE_LOOKED = "lane-looked", "a lane knows that its part is still to be sent"
    LANE_SENT_SNAPSHOT = "lane-sent-snapshot", "snapshot rows are on their way"
    LANE_SENT = "lane-sent", "all is on its way; nothing is committed"
    LANE_COMMITTED = "lane-committed", "the transaction is committed"
    LANE_LOGGED = "lane-logged", "the lane's log file is written; no table has it"
    SENT = "sent", "the transactions of all lanes are committed"
    REPLICATED = "replicated", "the log is committed"
    WAITING_KEPT = "waiting-kept", "events that wait for chunks of the table are committed"
    PROGRESSED = "progressed", "the progress is committed"
    SETTLED = "settled", "mutations took effect; Spark has not committed its offsets"
    COMPACTED = "compacted", "the log was compacted into the base; the log still has its files"
    MERGED = "merged", "log files were merged into one; the log still has them"
    BARRIER_SENT = "barrier-sent", "a barrier is on its way to every partition"
    BARRIER_COMMITTED = "barrier-committed", "a barrier is committed"

    @property
    def is_in_lane(self) -> bool:
        return self.startswith("lane-")


class Action(StrEnum):
    """Effect of a failpoint on the process."""

    KILL = "kill"
    SLEEP = "sleep"
    RAISE = "raise"


class Provoked(Exception):
    """The error of `raise`, of a class that no code handles."""


@dataclass(frozen=True, slots=True)
class Armed:
    """An action at a point in a batch; `root` is the process whose tree `kill` ends."""

    point: Failpoint
    count: int
    action: Action
    root: int


def parse(text: str) -> Armed:
    """Parse the value of the variable. Raises: ConfigError(USAGE)."""
    match = re.fullmatch(r"([a-z-]+)(?:@([1-9][0-9]{0,8}|last))?:(\w+)", text)
    if match is None or match[1] not in list(Failpoint) or match[3] not in list(Action):
        raise ConfigError(
            Code.USAGE,
            where=VARIABLE,
            found=repr(text),
            expected="name[@count]:kill|sleep|raise",
            next_step="see `backfill failpoints` for the names",
        )
    count = LAST if match[2] == "last" else int(match[2] or 1)
    return Armed(Failpoint(match[1]), count, Action(match[3]), os.getpid())


_armed: Armed | None = None
_for_lanes: Armed | None = None
_come_to = 0
_is_last = False


def arm(text: str | None) -> None:
    """Set the variable's value; None or an empty one disarms. Raises: ConfigError(USAGE)."""
    obey(parse(text) if text else None)


def obey(armed: Armed | None) -> None:
    """Set the driver's failpoint in a lane."""
    global _armed, _come_to
    _armed, _come_to = armed, 0


def expect(*, last: bool) -> None:
    """Announce a batch in the driver, before its effects. `last`: its plan reads a job to its end."""
    global _is_last, _for_lanes
    _is_last, _for_lanes = last, None
    if _armed is not None and _armed.point.is_in_lane and _is_due(_armed):
        _for_lanes = replace(_armed, count=1)


def names_a_lane() -> bool:
    """True if the failpoint is in a lane, which then has to run in a process of its own. For the driver."""
    return _armed is not None and _armed.point.is_in_lane


def for_lanes() -> Armed | None:
    """The failpoint for the lanes of this batch, at each attempt; any but `kill` only in the first. For the driver."""
    global _for_lanes
    taken = _for_lanes
    if taken is not None and taken.action is not Action.KILL:
        _for_lanes = None
    return taken


def reach(point: Failpoint) -> None:
    """Mark a point in the code: acts as the variable says, if it names this point and this batch."""
    if _armed is not None and _armed.point is point and _is_due(_armed):
        _happen(_armed)


def _is_due(armed: Armed) -> bool:
    global _come_to
    if armed.count == LAST:
        return _is_last
    _come_to += 1
    return _come_to == armed.count


def _happen(armed: Armed) -> None:
    (log_folder() / f"failpoint-{armed.point}").write_text(str(os.getpid()))
    match armed.action:
        case Action.RAISE:
            raise Provoked(armed.point)
        case Action.SLEEP:
            time.sleep(SLEEP_S)
        case Action.KILL:
            _kill_tree(armed.root)


def _kill_tree(root: int) -> None:
    # This process last: it may be a leaf.
    tree = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    for process in tree:
        if process.pid != os.getpid():
            process.send_signal(signal.SIGSTOP)  # so that no process retries or cleans up
    for process in tree:
        if process.pid != os.getpid():
            process.kill()
    os.kill(os.getpid(), signal.SIGKILL)
