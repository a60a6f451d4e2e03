"""Goals of the cases, and whether they are met: the first table of `docs/performance.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.bench.report.line import Summary, number
from tests.bench.report.results import Result

_HEAD = """| | measured | goal | case |
| --- | ---: | ---: | --- |
"""
_OWN = "target"
"""What a line is compared with that brings its own goal."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Of the one line of a case that fits the pattern `line`, as `fnmatch` has it. None fits: it was not measured.

    The line's value is to reach the target that it is compared with; with a `ratio`, the line's ratio is to reach that.
    `at_least`: more is better.
    """

    case: str
    what: str
    line: str
    at_least: bool = False
    ratio: float | None = None

    def row(self, result: Result | None) -> str:
        """A row of the table. Raises: LookupError where more than one line fits, or has nothing to reach."""
        line = None if result is None else self._line(result.lines)
        if result is None or line is None:
            return _row(self.what, "not measured", self._limit(self.ratio), f"`{self.case}`")
        by_ratio = line.ratio, self.ratio, f" of {line.compared_with}"
        own = line.value, line.compared, f" {line.unit}"
        reached, limit, unit = own if self.ratio is None else by_ratio
        if reached is None or limit is None:
            raise LookupError(f"{self.case}: {line.what!r} is compared with nothing")
        is_met = reached >= limit if self.at_least else reached <= limit
        goal = self._limit(limit) if is_met else f"**missed**: {self._limit(limit)}"
        return _row(self.what, _cell(reached) + unit, goal, f"`{self.case}`")

    def _limit(self, limit: float | None) -> str:
        return "" if limit is None else f"{'at least' if self.at_least else 'at most'} {_cell(limit)}"

    def _line(self, lines: Sequence[Summary]) -> Summary | None:
        own = [line for line in lines if fnmatchcase(line.what, self.line)]
        if self.ratio is None:
            own = [line for line in own if line.compared_with == _OWN]
        if len(own) > 1:
            raise LookupError(f"{self.case}: {len(own)} lines fit {self.line!r}")
        return own[0] if own else None


GOALS = (
    Goal("snapshot", "a snapshot of 10 M rows", "*10,000,000*, of the limit", True, 0.7),
    Goal("created", "`create --wait` until the first of 1 M rows is readable", "*first row is readable"),
    Goal("created", "... and the last one", "*last row is readable"),
    Goal("live", "live changes during a backfill of 10 M rows, p99", "backfill of 10,000,000*p99"),
    Goal("steady", "500 changes/s, one job complete: a batch", "*batch, median"),
    Goal("steady", "... live changes, p99", "*latency p99"),
    Goal("frequent", "barriers every 200 ms: live changes, p50", "*latency p50"),
    Goal("frequent", "... p99", "*latency p99"),
    Goal("quiet", "six complete jobs, no changes: CPU", "*CPU of driver, JVM and workers"),
    Goal("start", "a start to the first committed barrier", "start to*"),
    Goal("start", "a restart after SIGKILL, median", "*median"),
    Goal("build", "a replica from 20 M changes", "initial build, 20,000,000 *of the command", True),
    Goal("jobs", "16 jobs at once", "16 jobs*", ratio=3),
    Goal("many", "a batch of 50 jobs with 8,192 vnodes", "batch*", ratio=1.5),
    Goal("partitions", "a batch of 1,000 upstream partitions", "*batch, median"),
    Goal("cluster", "a batch on a Spark cluster", "*: batch*", ratio=1.5),
    Goal("cluster", "a snapshot on a Spark cluster", "*: snapshot*", True, 0.7),
    Goal("large", "a replica from 100 M records", "* 100,000,000 rows: built", True),
    Goal("large", "a snapshot of 100 M rows", "* 100,000,000 rows: snapshot, by size", True, 0.9),
    Goal("large", "... live changes meanwhile, p99", "* 100,000,000 rows: live latency p99, budget 2s"),
    Goal("large", "... peak memory", "* 100,000,000 rows: peak memory of *workers"),
    Goal("history", "live changes during compactions, p99", "*during compactions", ratio=1.2),
    Goal("formats", "a replica from `debezium-json`", "*000 rows from debezium-json", True, 0.6),
    Goal("formats", "... from `upsert-json`", "*000 rows from upsert-json", True, 0.7),
    Goal("formats", "... from `upsert` in Avro", "*000 rows from upsert-avro-registry", True, 0.9),
    Goal("before", "a filter by rows before, 1 M rows: a batch", "* 1,000,000 rows, *before", ratio=1.2),
    Goal("before", "... 10 M rows", "* 10,000,000 rows, *before", ratio=1.2),
    Goal("sustained", "40,000 changes/s as they come", "*from change: changes that come out", True, 0.98),
    Goal("sustained", "... `upsert-json`, with rows before", "*from upsert-json*come out", True, 0.98),
    Goal("outputs", "a snapshot as `upsert` in JSON", "snapshot*, upsert in JSON", True, 0.6),
    Goal("outputs", "... as `debezium` in JSON", "snapshot*, debezium in JSON", True, 0.6),
)


def goals_table(results: Mapping[str, Result], goals: Sequence[Goal] = GOALS) -> str:
    """A row for each goal."""
    return _HEAD + "".join(goal.row(results.get(goal.case)) for goal in goals)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cell(value: float) -> str:
    """Ratios and shares of a core keep two places."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value < 10 else number(value)
