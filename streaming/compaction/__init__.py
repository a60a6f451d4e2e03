"""Maintenance of the replica beside the batches: the log into the base, small files into one, dead files gone."""
