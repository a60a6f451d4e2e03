"""Limits of log files, and of merges that are made at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from state.maintenance.merge import Merge, Merged
from state.replica import Replica
from state.storage import Storage
from streaming.compaction.compactor import MOST_LOG_FILES, Compactor
from tests.kit.compactions import TABLE, append, compact_here, merge_here, no_compaction


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    replica = Replica(Storage(str(tmp_path)), TABLE)
    append(replica, 1)
    return replica


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [4, 80])
def test_a_batch_meets_a_bounded_number_of_log_files_however_many_lanes_write_them(
    tmp_path: Path, lanes: int
) -> None:
    replica = Replica(Storage(str(tmp_path)), TABLE)
    compactor = Compactor(
        compact_here, merge_here, replica, lambda report: None, compaction_least_rows=1 << 40
    )
    most = 0
    for epoch in range(1, 16):
        compactor.batch_begins()
        most = max(most, len(replica.files(replica.pin()).log))
        append(replica, epoch, count=lanes, files=lanes)
        compactor.between_batches(epoch, wait_for_compaction=False)
    compactor.finish()
    compactor.close()
    assert most <= MOST_LOG_FILES
    assert sum(file.rows for file in replica.log.files()) == 15 * lanes


def test_merges_take_half_of_the_slots_and_all_where_batches_wait_for_them(replica: Replica) -> None:
    sizes: list[tuple[int, int]] = []

    def noted(merges: Sequence[Merge]) -> list[Merged]:
        sizes.append((len(replica.log.files()), len(merges)))
        return merge_here(merges)

    compactor = Compactor(
        no_compaction, noted, replica, lambda report: None, compaction_least_rows=1 << 40, slots=lambda: 4
    )
    append(replica, 2, count=199, files=199)
    compactor.between_batches(2, wait_for_compaction=False)
    compactor.finish()
    append(replica, 3, count=300, files=300)
    compactor.between_batches(3, wait_for_compaction=False)
    compactor.finish()
    compactor.close()
    (at_rest, half), (behind, every), *_ = sizes
    assert (at_rest, half) == (MOST_LOG_FILES, 2)
    assert behind > MOST_LOG_FILES
    assert every == 4
