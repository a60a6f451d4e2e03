"""Maintenance of the state between batches: compaction, merges of log files, cleaning."""
