"""The row before: what a key held at the start of a batch, for upstreams whose records hold only the row after."""

from __future__ import annotations


def rows_name(transactional_id: str) -> str:
    """The name of the folder that holds a state's rows by key, below `folder.rows_root`."""
    return f"{transactional_id}-rows"
