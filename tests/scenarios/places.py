"""The places of crashes and faults, in the words of scenarios, as the simulation calls its steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

LANE = r"backfill-replica/log-\1"
WORDS = {
    r"open journal": "open journal",
    r"commit journal": "commit journal",
    r"commit log": "commit replica/log",
    r"commit base": "commit replica/base",
    r"commit waiting": "commit initial/waiting",
    r"commit progress": "commit progress",
    r"create topic (\S+)": r"create \1",
    r"read output (\S+)": r"read \1",
    r"lane (\d) (?:fences|fenced)": f"init {LANE}",
    r"lane (\d) (?:begins|begun)": f"begin {LANE}",
    r"lane (\d) (?:sends|sent)": f"commit {LANE}",
    r"task of lane (\d)": r"task of lane \1",
}
"""By what a scenario says (`commit progress`, `lane 0 sends`), what a step begins with."""

MAINTENANCE_STEP = "maintenance"
"""What the replica's maintenance may do between two batches."""


def step_of(words: Sequence[str]) -> str | None:
    """The name of the step that some words mean; None if they mean none."""
    text = " ".join(words)
    for pattern, step in WORDS.items():
        if match := re.fullmatch(pattern, text):
            return match.expand(step)
    return None


def is_at(stopped_at: str, step: str) -> bool:
    """True if a strand has stopped before a step. Commits go on with the version that they are based on."""
    return stopped_at == step or stopped_at.startswith(f"{step} on version ")
