"""Records at fault are parked: once, as they came, in the dead letters of every open job; nothing else is left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.errors import Code, InputError
from schemas.topics import DEAD_LETTERS_SUFFIX
from streaming.kafka.consumer import header_of
from streaming.sink.dead_letters import CODE_HEADER, PLACE_HEADER
from tests.kit.faulty_records import BROKEN, BROKEN_KEYS, KEY, ROW, TABLE, insert
from tests.kit.real import Stage, records

SetUp = Callable[..., Stage]
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
    error = stage.fails(on_bad_record="park", limits=limits)
    assert isinstance(error, InputError)
    assert (error.code, error.exit_status) == (Code.EMPTY_RECORD, 4)
    assert "it can't be parked: no job is open" in str(error)

    given: list[tuple[bytes | None, bytes | None, Code]]
    given = [(KEY, value, code) for value, code in BROKEN.values()]
    given += [(key, insert(), code) for key, code in BROKEN_KEYS.values()]
    skip = frozenset({(1, early)})
    with stage.running(on_bad_record="park", skip=skip, limits=limits) as run:
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
        verdict = stage.verify(number, left_out=skip, siblings=outputs)
        assert verdict.clean, verdict.findings[:3]
