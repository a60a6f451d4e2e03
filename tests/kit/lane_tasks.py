"""A lane's task with nothing to send."""

from __future__ import annotations

from typing import Any

from schemas.settings.limits import Limits
from schemas.table import TableSchema
from state.storage import Storage
from state.values.plan import BatchPlan
from streaming.lane.task import LaneTask


def lane_task(storage: Storage, table: TableSchema, plan: BatchPlan, **more: Any) -> LaneTask:
    """Without jobs and parked records; `more` are fields of `LaneTask`."""
    fields: dict[str, Any] = {
        "storage": storage,
        "table": table,
        "plan": plan,
        "progress": {},
        "scans": {},
        "sinks": {},
        "read_letters": lambda parked: (),
        "transactional_id": "none",
        "journal_version": 0,
        "limits": Limits(),
        "known_ends": {},
    }
    return LaneTask(**{**fields, **more})
