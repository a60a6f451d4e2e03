"""What a start does before the first batch: the open plan again, and a state that is older than its outputs."""
