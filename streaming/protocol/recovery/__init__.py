"""Recovery before the first batch: the open plan, and a state that is older than its outputs."""
