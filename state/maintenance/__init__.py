"""What keeps the state small, beside the batches: compaction, merges of log files, cleaning."""
