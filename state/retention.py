"""Retention of files and commits that no newest version needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateRetention:
    """`files_s`: how long a data file outlives its removal from its table, and a file that was never committed.

    Far longer than any plan pins a version, for readers are given paths. `log_s`: how long commits before a
    checkpoint stay. Each commit and each opening of a table lists all that are there, 10 ms for 2,500 of them, so they
    stay only as long as a reader needs who has just listed them. `checkpoint_commits`: a reader replays at most this
    many small commits; of the base, whose commits are rare and large, `base_checkpoint_commits`.

    All but `log_s` are properties of a table, which keeps those that it was created with.
    """

    files_s: int = 3_600
    log_s: int = 600
    checkpoint_commits: int = 100
    base_checkpoint_commits: int = 10

    def properties(self, checkpoint_commits: int) -> dict[str, str]:
        """Delta's properties of a table that is created with it."""
        return {
            "delta.checkpointInterval": str(checkpoint_commits),
            "delta.logRetentionDuration": f"interval {self.log_s} seconds",
            "delta.deletedFileRetentionDuration": f"interval {self.files_s} seconds",
            # Readers are given plain files.
            "delta.enableDeletionVectors": "false",
        }
