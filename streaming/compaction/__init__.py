"""Maintenance of the replica in parallel with batches: compaction, merges of small files, cleaning."""
