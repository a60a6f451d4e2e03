"""Offsets: where slices of the topic end, what a position covers, and what is known of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.registry import DEFAULT
from schemas.formats.upsert import UpsertFormat
from schemas.job import JobDefinition
from schemas.position import Key, position_from_text, position_to_text
from state.small_files import EmptyRange, EmptyRanges
from state.storage import Storage
from state.values.aligned import Pin, ReplicaVersion
from state.values.progress import NotStarted, Progress, after_slice
from streaming.core.planning import Amount
from streaming.kafka.topics import Watermarks
from streaming.scan.kinds import SourceBackfill, UpstreamLog
from streaming.source.decoded import Changes
from streaming.source.retention import Gaps
from tests.kit.live_changes import live_changes
from tests.kit.tables import table

BEGINS, ENDS = [0, 7, 4, 9], (25, 7, 9, 2)
PIN = Pin(ReplicaVersion(0, 0, 0), ENDS)
ROW_BYTES = 10


def scan(begins: Sequence[int] = BEGINS) -> SourceBackfill:
    return SourceBackfill(UpstreamLog(DEFAULT, lambda: begins, lambda count: count * ROW_BYTES))


def live(partition: int, count: int) -> Changes:
    """The records of one partition, at offsets from 0 on."""
    return live_changes(np.zeros(count, np.int32), [pa.nulls(count)], np.full(count, partition, np.int32))


@given(
    st.integers(0, 3),
    st.lists(st.builds(Amount, st.integers(1, 9), st.integers(1, 90)), min_size=1, max_size=4),
)
def test_slices_of_any_budgets_follow_one_another_and_cover_what_they_hold(
    part: int, amounts: list[Amount]
) -> None:
    read, pinned = scan(), scan().pinned(PIN, frozenset())
    after: Key | None = None
    progress: Progress = NotStarted()
    for number in range(40):
        limit = amounts[number % len(amounts)]
        cut = read.cut(PIN, part, after, limit)
        assert cut.rows <= max(limit.rows, 1)
        assert cut.size <= max(limit.size, ROW_BYTES)
        progress = after_slice(progress, cut.upto, cut.rows)
        covered = pinned.covered(live(part, 30), {part: progress}).tolist()
        assert covered == [cut.upto is None or offset < cut.upto[0] for offset in range(30)]
        if cut.upto is None:
            break
        columns = JOB.scan.position_columns(table())
        assert position_from_text(position_to_text(cut.upto), columns) == cut.upto
        after = cut.upto
    assert progress.row_count == max(ENDS[part] - BEGINS[part], 0), "offsets that are there, each once"
    assert not pinned.covered(live(part, 30), {}).any()


def test_a_partition_without_records_is_at_its_end_at_once() -> None:
    assert scan().cut(PIN, 1, None, Amount(5, 50)) == scan().cut(PIN, 3, None, Amount(5, 50))
    assert scan().cut(PIN, 1, None, Amount(5, 50)).upto is None


def test_what_is_gone_before_it_was_read_is_reported() -> None:
    started = {0: after_slice(NotStarted(), (3,), 3), 2: after_slice(NotStarted(), (5,), 1)}
    assert scan().lost(PIN, started) is None
    assert scan([4, 7, 5, 9]).lost(PIN, started) == "0@3 to 0@3"


JOB = JobDefinition.declare({"name": "log", "output": "log", "read": "topic"}, table())


def test_a_job_takes_the_partitions_of_its_upstream() -> None:
    assert JOB.with_partitions(4).part_count == 4
    assert scan().incompatibility(JOB.with_partitions(4), PIN) is None
    named = JobDefinition.declare(
        {"name": "log", "output": "log", "read": "topic", "output_partitions": 2}, table()
    )
    assert named.with_partitions(4) == named
    assert "2 output_partitions, of 4 partitions" in (scan().incompatibility(named, PIN) or "")
    assert JobDefinition.from_json(JOB.to_json(), table()) == JOB
    with pytest.raises(ConfigError, match="output_partitions 0 is not in 1"):
        JobDefinition.declare(
            {"name": "log", "output": "log", "read": "topic", "output_partitions": 0}, table()
        )


def test_an_upstream_whose_records_do_not_say_what_was_there_is_refused() -> None:
    assert JOB.scan.incompatibility_with_format(DEFAULT) is None
    assert "format: change" in (JOB.scan.incompatibility_with_format(UpsertFormat()) or "")
    assert "format: change" in (
        JOB.scan.incompatibility_with_format(DebeziumFormat(before="full")) or ""
    )  # its records are redelivered


TRIMMED = (Watermarks(9, 12, 12),)


def kept(folder: Path, *ranges: EmptyRange) -> EmptyRanges:
    found = EmptyRanges(Storage(str(folder)))
    found.write(dict(enumerate(ranges)))
    return found


def refused(gaps: Gaps, wanted: int) -> InputError:
    with pytest.raises(InputError) as caught:
        gaps.refuse_lost("up", TRIMMED, (wanted,))
    return caught.value


def test_what_was_seen_to_hold_nothing_is_not_missed_by_any_later_run(tmp_path: Path) -> None:
    kept(tmp_path, EmptyRange(7, 10))
    gaps = Gaps(EmptyRanges(Storage(str(tmp_path))))
    gaps.refuse_lost("up", TRIMMED, (7,))
    assert gaps.first((7,)) == (10,)
    assert gaps.first((8,)) == (8,)


def test_a_record_that_was_seen_and_is_gone_is_lost_for_sure(tmp_path: Path) -> None:
    error = refused(Gaps(kept(tmp_path, EmptyRange(7, 8, is_full=True))), 7)
    assert (error.where, error.found) == ("up-0@7", "a partition without its records 8 to 8")


def test_what_can_not_be_known_is_said_and_may_be_passed_over_by_name() -> None:
    error = refused(Gaps(), 7)
    assert error.found.endswith("can't be known any more")
    assert "--skip-record 0@7 --skip-record 0@8;" in error.next_step
    assert refused(Gaps(named=frozenset({(0, 8)})), 7).where == "up-0@7"
    gaps = Gaps(named=frozenset({(0, 7), (0, 8)}))
    gaps.refuse_lost("up", TRIMMED, (7,))
    assert gaps.first((7,)) == (9,)


def test_a_beginning_that_is_gone_held_records() -> None:
    assert refused(Gaps(), 0).found == "a partition without its records 0 to 8"


def test_a_file_that_is_none_tells_nothing(tmp_path: Path) -> None:
    ranges = kept(tmp_path, EmptyRange(7, 10))
    for text in ("", "[]", '{"0": [1]}', '{"0": 3}'):
        (tmp_path / "upstream" / "empty.json").write_text(text, encoding="utf-8")
        assert ranges.read() == {}
