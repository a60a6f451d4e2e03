"""SIGKILL while the table is copied that a state starts from, in both passes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from schemas.records import Row
from state.storage import Storage
from streaming.control.state_view import StateReader
from streaming.kafka.consumer import RangeReader
from streaming.runtime.failpoints import Failpoint
from tests.bench.rig import TABLE
from tests.faults.conftest import KillScenarios
from tests.kit.avro_codec import ChangeCodec
from tests.kit.kill_scenario import KillScenario

pytestmark = pytest.mark.timeout(900)
ROWS = 20_000
FILES = 4


def start_from_a_table(tried: KillScenario) -> None:
    """Make a Delta table of the topic's records, INSERTs alone, and start the service from it."""
    codec, rows = ChangeCodec(TABLE.columns), list[Row]()
    with RangeReader(tried.kafka) as reader:
        ends = [marks.stable for marks in reader.watermarks(tried.upstream)]
        for chunk in reader.read(tried.upstream, {number: (0, end) for number, end in enumerate(ends)}):
            for record in chunk:
                value = record.value()
                assert isinstance(value, bytes)
                row = codec.decode(value).after
                assert row is not None
                rows.append(row)
    uri = str(tried.folder / "source")
    schema = pa.schema([(column.name, column.type.arrow) for column in TABLE.columns])
    for number in range(FILES):
        part = rows[number::FILES]
        columns = {name: [row[i] for row in part] for i, name in enumerate(TABLE.column_names)}
        write_deltalake(uri, pa.table(columns, schema=schema), mode="append")
    delta = {"uri": uri, "version": DeltaTable(uri).version(), "offsets": ends}
    tried.declare(initial={"delta": delta}, limits={"interval_records": 5_000})
    assert len(rows) == ROWS


@pytest.mark.faults
def test_a_kill_in_each_pass_of_the_copy(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario(rows=ROWS, rate_limit=None)
    start_from_a_table(tried)
    with tried.live():
        is_sorted = False
        while not is_sorted:
            tried.falls(f"{Failpoint.COPIED}:kill")
            copy = StateReader(Storage(str(tried.folder / "state")), TABLE).read().copy
            assert copy is not None
            is_sorted = copy.sorted == ROWS
        tried.completes()
    assert tried.judge().snapshot_rows >= ROWS // 2
