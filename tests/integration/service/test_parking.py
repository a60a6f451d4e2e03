"""Invalid records are parked: once, as they came, in the dead letters of every open job; nothing else is left out."""

from __future__ import annotations

import pytest

from schemas.errors import Code
from schemas.topics import DEAD_LETTERS_SUFFIX
from streaming.kafka.consumer import header_of
from streaming.sink.dead_letters import CODE_HEADER, PLACE_HEADER
from tests.kit.faulty_records import BROKEN, BROKEN_KEYS, KEY, ROW, TABLE, insert
from tests.kit.folded import folded
from tests.kit.real import SetUp, Stage, records

JOBS = {"name": "copy"}, {"name": "again", "columns": ["s", "i"], "filter": "i = 5"}


@pytest.mark.parametrize("short_records", [2_000, 0], ids=["direct", "exchanged"])
def test_every_kind_of_record_at_fault_is_parked_once_for_every_job(
    set_up: SetUp, short_records: int
) -> None:
    limits = {"short_records": short_records}
    stage = set_up(*JOBS, table=TABLE.to_dict(), lanes=2)
    upstream = stage.upstream
    for number in range(20):
        upstream.put((number, *ROW[1:]))
    early = upstream.send(1, KEY, b"")
    upstream.barrier()

    given: list[tuple[bytes | None, bytes | None, Code]]
    given = [(KEY, value, code) for value, code in BROKEN.values()]
    given += [(key, insert(), code) for key, code in BROKEN_KEYS.values()]
    with stage.running(on_bad_record="park", limits=limits) as run:
        run.reach(upstream.barrier())
        expected: dict[bytes, tuple[bytes, bytes | None, bytes | None]] = {}
        for number, (key, value, code) in enumerate(given):
            place = f"{upstream.name}-{number % 2}@{upstream.send(number % 2, key, value)}"
            expected[place.encode()] = (code.encode(), key, value)
            upstream.put((number % 20, 7, *ROW[2:]))
        report = run.reach(upstream.barrier())
        assert len(report.plan.parked) == len(given)
        run.until(lambda: run.is_complete("copy") and run.is_complete("again"))
    with stage.running(lanes=4) as run:  # the policy is another, and what was parked is behind us
        run.reach(upstream.barrier())

    outputs = [str(job["output"]) for job in stage.jobs]
    for number, output in enumerate(outputs):
        [letters] = records(upstream.kafka, output + DEAD_LETTERS_SUFFIX)
        found = {
            header_of(letter, PLACE_HEADER): (header_of(letter, CODE_HEADER), letter.key(), letter.value())
            for letter in letters
        }
        assert len(letters) == len(given)
        assert found == expected
        stage.assert_lawful(number, siblings=outputs)
    assert places_of_the_table(stage) == [f"{upstream.name}-1@{early}"]


def places_of_the_table(stage: Stage) -> list[str]:
    """Of its letters, in their order."""
    [letters] = records(stage.upstream.kafka, stage.upstream.name + DEAD_LETTERS_SUFFIX)
    return [str((header_of(letter, PLACE_HEADER) or b"").decode()) for letter in letters]


def test_what_is_at_fault_before_there_is_a_job_is_parked_once_with_the_table(set_up: SetUp) -> None:
    stage = set_up(table=TABLE.to_dict(), lanes=2)
    upstream = stage.upstream
    for number in range(6):
        upstream.put((number, *ROW[1:]))
    first = upstream.send(0, KEY, b"")
    upstream.put((7, *ROW[1:]))
    with stage.running(on_bad_record="park", limits={"interval_records": 3}) as run:
        run.reach(upstream.barrier())
        second = upstream.send(1, KEY, b"?")
        run.reach(upstream.barrier())
    places = [f"{upstream.name}-0@{first}", f"{upstream.name}-1@{second}"]
    assert places_of_the_table(stage) == places
    with stage.running(state="anew", on_bad_record="park") as run:  # finds the letters there
        run.reach(upstream.barrier())
    assert places_of_the_table(stage) == places
    stage.jobs = [{"name": "late", "output": f"{upstream.name}-late"}]
    with stage.running(on_bad_record="park") as run:
        run.reach(upstream.barrier())
        stage.finish(run, "late")
    stage.assert_lawful(0)
    assert folded(stage) == upstream.rows
