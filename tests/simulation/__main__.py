"""`make simulate`: all there is to be played, on all cores; or one history that is to be looked at.

make simulate SEEDS=100000                  everything enumerated, the canaries, and seeds 0 to 99,999
make simulate SEEDS=100000 FROM=40000       goes on with a run that was stopped: seeds 40,000 to 99,999 alone
make simulate SEED=123                      one history: its trace, and what is wrong with it
make simulate CRASHES="40 5" ORDER=1        likewise: crashes before step 40, and before step 5 of the recovery
make simulate CRASHES="40" READING=1        likewise, of a table that is read from its database
make simulate CRASHES="40" EXTENTS=1        likewise, of jobs that begin now, end, or are created paused
make simulate HANDOVER="57 5" ORDER=0       likewise: stopped before step 57, going on after 5 of its rival's
make simulate DEATHS=1                      new histories for deaths.json, where one shows its canary no more
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

import pyarrow as pa
import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tests.simulation import handovers
from tests.simulation.altering import AddsItself, alterations, growing, play_growing
from tests.simulation.canaries import CANARIES, DEATHS
from tests.simulation.cases import Case, broken
from tests.simulation.crashes import (
    ORDERS,
    Exploration,
    jobs_that_begin_or_end,
    replay,
    twelve_epochs,
)
from tests.simulation.from_database import reading_that_is_over_early, small_reading
from tests.simulation.gaining import BARRIERS, gaining
from tests.simulation.gaining import IN_PARTS as MOVED_IN_PARTS
from tests.simulation.histories import Verdict, play
from tests.simulation.instance import Instance
from tests.simulation.power import power_failures
from tests.simulation.redelivery import IN_PARTS, crashes_of, redeliveries
from tests.simulation.rescaled import rescaled
from tests.simulation.restores import jobs_that_come_and_go, mixtures, rebuilds, restores
from tests.simulation.suspending import play_suspended, suspensions
from tests.simulation.too_long import long_changes, long_rows
from tests.simulation.world import Setting

CHUNK = 50
WAKES = 5
"""Of hand-overs in long settings each fifth moment is played, for all of them take some hours."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--from", type=int, dest="first", help="play seeds alone, from this one on")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--crashes", type=int, nargs="+")
    parser.add_argument("--reading", action="store_true")
    parser.add_argument("--extents", action="store_true")
    parser.add_argument("--hand-over", type=int, nargs=2)
    parser.add_argument("--deaths", action="store_true")
    parser.add_argument("--order", type=int, choices=range(len(ORDERS)), default=0)
    arguments = parser.parse_args()
    order = ORDERS[arguments.order]
    if arguments.seed is not None:
        verdict = play(arguments.seed)
        return _show([*verdict.trace, f"digest {verdict.digest}"], verdict.violations)
    if arguments.crashes is not None:
        setting = twelve_epochs()
        if arguments.reading or arguments.extents:
            setting = small_reading() if arguments.reading else jobs_that_begin_or_end()
        return _show(*replay(setting, order, tuple(arguments.crashes)))
    if arguments.hand_over is not None:
        played = handovers.hand_over(order, *arguments.hand_over)
        return _show(*(played or ([], ["there is no such history"])))
    if arguments.deaths:
        return _write_deaths()
    return _play_all(range(arguments.first or 0, arguments.seeds), seeds_alone=arguments.first is not None)


def _show(trace: list[str], violations: list[str]) -> int:
    sys.stdout.write("\n".join([*trace, *(violations or ["the law holds"]), ""]))
    return bool(violations)


def failed(verdict: Verdict) -> str:
    """A failure as it is printed: what is wrong, and the command that shows it again."""
    return "\n  ".join([f"make simulate SEED={verdict.seed}", *verdict.violations[:3]])


# everything ------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Work in pieces: each gives how many histories were played, and which of them are broken."""

    name: str
    work: Callable[[Any], tuple[int, list[str]]]
    pieces: Sequence[Any]


def _crashes(piece: tuple[int, bool]) -> tuple[int, list[str]]:
    order, with_compaction = piece
    # With compaction what crashes leave differs too much for the rounds of any number of them to come to an end soon.
    exploration = Exploration(replace(twelve_epochs(), compactions=with_compaction), ORDERS[order])
    exploration.run(most_crashes=2 if with_compaction else None)
    return sum(exploration.distinct), exploration.broken


def _crashes_while_reading(piece: int) -> tuple[int, list[str]]:
    exploration = Exploration(small_reading(), ORDERS[piece], " READING=1")
    exploration.run(most_crashes=2)
    return sum(exploration.distinct), exploration.broken


def _crashes_of_extents(piece: int) -> tuple[int, list[str]]:
    exploration = Exploration(jobs_that_begin_or_end(), ORDERS[piece], " EXTENTS=1")
    exploration.run(most_crashes=2)
    return sum(exploration.distinct), exploration.broken


OTHERS: dict[str, Callable[[], Setting]] = {
    "redelivered records": redeliveries,
    "redelivered records in parts": partial(redeliveries, IN_PARTS),
    "rows that are too long": long_rows,
    "changes that are too long": long_changes,
    "lanes that change": rescaled,
    **{f"a partition in interval {at}": partial(gaining, at) for at in range(1, BARRIERS)},
    "partitions, barriers beside the data": partial(gaining, 2, 4, beside=True),
    "partitions, long intervals": partial(gaining, 2, 4, limits=MOVED_IN_PARTS),
}
"""Settings of which each single crash is played."""


def _other_crashes(piece: tuple[str, int]) -> tuple[int, list[str]]:
    name, order = piece
    count, found = _enumerate(order, crashes_of(OTHERS[name](), ORDERS[order]))
    return count, [f"{name}, {each}" for each in found]


def _other_hand_overs(piece: tuple[Callable[[], Setting], type[Instance], int]) -> tuple[int, list[str]]:
    setting_of, instance_type, stop = piece
    played = list(handovers.hand_overs(ORDERS[0], [stop], instance_type, setting_of, WAKES))
    found = [f"stop {stop}, wake {wake}: {wrong[0]}" for _, wake, wrong in played if wrong]
    return len(played), found


def _power_failures(piece: int) -> tuple[int, list[str]]:
    settings = twelve_epochs(), small_reading(), jobs_that_begin_or_end()
    ordinary = (case for setting in settings for case in power_failures(setting, ORDERS[piece]))
    return _enumerate(piece, chain(ordinary, power_failures(growing(), ORDERS[piece], AddsItself)))


def _restores(piece: int) -> tuple[int, list[str]]:
    setting, order = jobs_that_come_and_go(), ORDERS[piece]
    further = reading_that_is_over_early(), jobs_that_begin_or_end(), gaining(2, 4, reads_topic=False)
    older = [case for each in (setting, *further) for case in restores(each, order)]
    mixed = mixtures(setting, order)
    return _enumerate(piece, chain(older, mixed, rebuilds(setting, order, every=1)))


def _enumerate(order: int, cases: Iterable[Case]) -> tuple[int, list[str]]:
    count, found = broken(cases)
    return count, [f"order {order}, {each}" for each in found]


def _suspensions(piece: int) -> tuple[int, list[str]]:
    return _enumerate(piece, suspensions(ORDERS[piece]))


def _alterations(piece: int) -> tuple[int, list[str]]:
    return _enumerate(piece, alterations(ORDERS[piece]))


def _grown_seeds(piece: range) -> tuple[int, list[str]]:
    return len(piece), [failed(verdict) for verdict in map(play_growing, piece) if verdict.violations]


def _suspended_seeds(piece: range) -> tuple[int, list[str]]:
    return len(piece), [failed(verdict) for verdict in map(play_suspended, piece) if verdict.violations]


def _hand_overs(piece: tuple[int, int]) -> tuple[int, list[str]]:
    order, stop = piece
    played = list(handovers.hand_overs(ORDERS[order], [stop]))
    found = [
        f'make simulate HANDOVER="{stop} {wake}" ORDER={order}\n  {wrong[0]}'
        for _, wake, wrong in played
        if wrong
    ]
    return len(played), found


def _seeds(piece: range) -> tuple[int, list[str]]:
    return len(piece), [failed(verdict) for verdict in map(play, piece) if verdict.violations]


def _canary(number: int) -> tuple[str, str]:
    return CANARIES[number].dies_first() or ("", "it lives")


def _play_all(seeds: range, *, seeds_alone: bool) -> int:
    console = Console()
    with ProcessPoolExecutor(os.cpu_count(), initializer=_quiet) as pool:
        alive = 0 if seeds_alone else _print_canaries(console, pool)
        parts = [] if seeds_alone else _enumerated()
        failures = sum(_play_part(console, pool, part) for part in [*parts, _random(seeds)])
    return bool(alive or failures)


def _enumerated() -> list[Part]:
    orders = range(len(ORDERS))
    return [
        Part("any number of crashes", _crashes, [(order, False) for order in orders]),
        Part("pairs of crashes, with compaction", _crashes, [(order, True) for order in orders]),
        Part("pairs of crashes while a table is read", _crashes_while_reading, orders),
        Part("pairs of crashes of jobs that begin now or end", _crashes_of_extents, orders),
        Part("crashes of other settings", _other_crashes, [*product(OTHERS, orders)]),
        *(
            Part(
                f"hand-overs of {name}",
                _other_hand_overs,
                [(setting_of, by, stop) for stop in handovers.every_stop(ORDERS[0], setting_of, by)],
            )
            for name, setting_of, by in (
                ("such jobs", jobs_that_begin_or_end, Instance),
                ("lanes that change", rescaled, Instance),
                ("partitions", partial(gaining, 2), Instance),
                ("a table that gets a column", growing, AddsItself),
            )
        ),
        Part("power failures", _power_failures, orders),
        Part("older states, and lost ones", _restores, orders),
        Part("crashes while the table is suspended", _suspensions, orders),
        Part("crashes while the table gets a column", _alterations, orders),
        Part(
            "seeds with tables that grow", _grown_seeds, [range(n, n + CHUNK) for n in range(0, 2_000, CHUNK)]
        ),
        Part(
            "seeds with suspended tables",
            _suspended_seeds,
            [range(n, n + CHUNK) for n in range(0, 2_000, CHUNK)],
        ),
        Part(
            "hand-overs", _hand_overs, [(n, stop) for n in orders for stop in handovers.every_stop(ORDERS[n])]
        ),
    ]


def _random(seeds: range) -> Part:
    return Part("seeds", _seeds, [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)])


def _quiet() -> None:
    pa.set_cpu_count(1)  # tables of a few rows: handing them to threads costs more than the work
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _write_deaths() -> int:
    console, deaths = Console(), dict[str, str]()
    with ProcessPoolExecutor(os.cpu_count(), initializer=_quiet) as pool:
        found = zip(CANARIES, pool.map(_death, range(len(CANARIES))), strict=True)
        for canary, (where, how) in found:
            console.print(f"{canary}: {how}")
            if where:
                deaths[str(canary)] = where
    DEATHS.write_text(json.dumps(deaths, indent=1) + "\n", encoding="utf-8")
    return len(CANARIES) - len(deaths)


def _death(number: int) -> tuple[str, str]:
    known = CANARIES[number].dies_as_known()
    if known is not None:
        return known, "as known"
    where, wrong = _canary(number)
    return where, where or wrong


def _print_canaries(console: Console, pool: ProcessPoolExecutor) -> int:
    """Gives how many are alive. Two lines a canary, for a terminal of 80 columns."""
    table = Table("step", "what is broken, and what is wrong then", title="Canaries", expand=True)
    found = list(pool.map(_canary, range(len(CANARIES))))
    for canary, (where, wrong) in zip(CANARIES, found, strict=True):
        shown = Text.assemble(
            (canary.broken, "bold"), f" ({where})\n" if where else "\n", wrong.splitlines()[0]
        )
        table.add_row(canary.step, shown)
    console.print(table)
    return sum(not where for where, _ in found)


def _play_part(console: Console, pool: ProcessPoolExecutor, part: Part) -> int:
    """Gives how many histories are broken."""
    count, total = 0, 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        for played, failures in progress.track(
            pool.map(part.work, part.pieces), total=len(part.pieces), description=part.name
        ):
            count, total = count + played, total + len(failures)
            for failure in failures:
                console.print(failure, markup=False)
    console.print(f"{part.name}: {count} histories, {total} broken")
    return total


if __name__ == "__main__":
    _quiet()
    sys.exit(main())
