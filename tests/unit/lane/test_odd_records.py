"""When records are read by whole columns again."""

from __future__ import annotations

from streaming.protocol.lanes.odd_records import MOST_BATCHES, OddRecords


def batches_until_tried(records: OddRecords) -> int:
    count = 0
    while records.are_likely:
        records.passed()
        count += 1
    return count


def test_one_odd_record_costs_a_batch() -> None:
    records = OddRecords()
    records.tried(were_odd=True)
    assert batches_until_tried(records) == 1
    records.tried(were_odd=False)
    records.tried(were_odd=True)
    assert batches_until_tried(records) == 1


def test_a_writer_whose_records_are_all_odd_is_tried_ever_less() -> None:
    records, pauses = OddRecords(), []
    for _ in range(10):
        records.tried(were_odd=True)
        pauses.append(batches_until_tried(records))
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 128, MOST_BATCHES]
