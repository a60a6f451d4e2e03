"""Months of a state: as many commits as a month has checkpoints for, with retention and intervals shortened.

Batches are played without Spark and Kafka (`tests.bench.player`), by processes that are killed now and then in
the middle three fifths; the last fifth is held against the first.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.player import TABLES, Left, Played
from tests.bench.report.line import Course, Line, Notify, median

KILLS, MOST_KILLS = 1_000, 20
"""Batches from one kill to the next, and kills in all, at the most."""
_PACE_S = 0.08
_LOOKS = 400
_STEPS = 100
_REPORT_EVERY = 50
_FIFTH = 0.2


def months(batches: int, folder: Path, notify: Notify, pace_s: float = _PACE_S) -> list[Line]:
    """Play so many batches, one each `pace_s` seconds where the machine is fast enough, and look at the state.

    With the same time from batch to batch in the first and the last fifth, as much is younger than the retention.
    """
    kills = sorted(_moments(batches))
    killed, played, left = 0, list[Played](), None
    while left is None:
        with _player(folder, batches, pace_s) as lines:
            kill_at = kills[killed] if killed < len(kills) else batches + 1
            for line in lines:
                if isinstance(line, Left):
                    left = line
                    break
                played.append(line)
                if line.number % _REPORT_EVERY == 0:
                    notify(f"batch {line.number:,} of {batches:,}, {killed} kills so far")
                if line.number >= kill_at:
                    killed += 1
                    break
    return _lines(batches, killed, played, left)


def _moments(batches: int) -> set[int]:
    """The batches after which a player is killed, while it does whatever it does then."""
    first, last = int(batches * _FIFTH), int(batches * (1 - _FIFTH))
    count = min(MOST_KILLS, max((last - first) // KILLS, 2))
    return set(random.Random(batches).sample(range(first, last), count))


@contextmanager
def _player(folder: Path, batches: int, pace_s: float) -> Iterator[Iterator[Played | Left]]:
    """The lines that a player prints, until the block ends: then it is killed."""
    program = [sys.executable, "-m", "tests.bench.player"]
    arguments = [str(folder), str(batches), str(pace_s), str(max(batches // _LOOKS, 1))]
    with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _reports(process)
        finally:
            process.kill()


def _reports(process: subprocess.Popen[str]) -> Iterator[Played | Left]:
    assert process.stdout is not None
    for line in process.stdout:
        fields = json.loads(line)
        yield Left(**fields) if "dead_files" in fields else Played(**fields)
    raise AssertionError(f"a player ended by itself, with status {process.wait()}")


def _lines(batches: int, kills: int, played: Sequence[Played], left: Left) -> list[Line]:
    of = f"{batches:,} batches"
    looked = [each for each in played if each.files]
    lines = [
        _rate(f"{of}: batches a second, last fifth", batches, played),
        _flat(f"{of}: commits of a batch, median", "ms", batches, played, lambda each: each.commits_ms),
        _flat(f"{of}: memory of the process, median", "MiB", batches, played, lambda each: each.memory_mib),
        _flat(f"{of}: files of the log that a batch meets, most", "", batches, played, _log_files, max),
    ]
    for name in TABLES:
        lines += [
            _flat(f"{of}: files on disk, {name}, median", "", batches, looked, _of(name, "files")),
            _flat(f"{of}: bytes on disk, {name}, median", "B", batches, looked, _of(name, "bytes")),
            _flat(f"{of}: listing {name}, median", "ms", batches, looked, _of(name, "list_ms")),
        ]
    compactions = sum(
        max(after.compactions - before.compactions, 0) for before, after in itertools.pairwise(played)
    )
    return [
        *lines,
        Line(f"{of}: kills", kills, ""),
        Line(f"{of}: compactions", compactions, ""),
        *(Line(f"{of}: commits, {name}", count, "") for name, count in left.versions.items()),
        Line(f"{of}: dead files once the retention is over", left.dead_files, ""),
        Line(f"{of}: rows that are not as they should be", left.wrong_rows, ""),
    ]


def _rate(what: str, batches: int, played: Sequence[Played]) -> Line:
    """The rate of batches in the last fifth against the first: it decides how many are younger than the retention."""
    first, last = (
        [each.at for each in played if low < each.number / batches <= high]
        for low, high in ((0.0, _FIFTH), (1 - _FIFTH, 1.0))
    )
    rates = [(len(fifth) - 1) / (fifth[-1] - fifth[0]) for fifth in (first, last)]
    return Line(what, rates[1], "1/s", "first fifth", rates[0])


def _log_files(each: Played) -> float:
    return each.log_files


def _of(table: str, what: str) -> Callable[[Played], float]:
    return lambda each: float(getattr(each, what)[table])


def _flat(
    what: str,
    unit: str,
    batches: int,
    played: Sequence[Played],
    value: Callable[[Played], float],
    of: Callable[[Sequence[float]], float] = median,
) -> Line:
    """The last fifth against the first, and how it went in between."""
    first = [value(each) for each in played if each.number <= batches * _FIFTH]
    last = [value(each) for each in played if each.number > batches * (1 - _FIFTH)]
    return Line(f"{what}, last fifth", of(last), unit, "first fifth", of(first), _course(played, value, of))


def _course(
    played: Sequence[Played], value: Callable[[Played], float], of: Callable[[Sequence[float]], float]
) -> Course:
    """Over the time that it took, in as many steps as a picture shows."""
    waiting, size, steps = deque(played), max(len(played) // _STEPS, 1), []
    while waiting:
        part = [waiting.popleft() for _ in range(min(size, len(waiting)))]
        steps.append((round(part[0].at - played[0].at, 1), round(of([value(each) for each in part]), 2)))
    return tuple(steps)
