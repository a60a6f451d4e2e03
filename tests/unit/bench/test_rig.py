"""What a service of a benchmark says of itself, line by line."""

from __future__ import annotations

import json
import subprocess
import sys

from streaming.dev.bench.rig import ServiceRun

_AT = "2026-01-31T12:00:00Z"
_LINES = [
    {"timestamp": _AT, "event": "building", "records": 10, "of": 30},
    {"timestamp": _AT, "event": "building", "records": 20, "of": 30},
    {"timestamp": _AT, "event": "batch", "changes": 9, "epoch": 1},
    {"timestamp": _AT, "event": "batch", "changes": 1, "epoch": 2},
]


def test_the_parts_of_a_large_build_count_as_changes_and_have_no_batch_of_their_own() -> None:
    text = "\n".join(map(json.dumps, _LINES))
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.stderr.write({text!r})"], stderr=subprocess.PIPE, text=True
    ) as process:
        run = ServiceRun(process)
        run.read_log()
        assert run.await_changes(29).epoch == 1
        assert [records for _, records in run.parts] == [10, 20]
        assert len(run.batches) == 2
