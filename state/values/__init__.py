"""Values of the state, without any storage: plans, positions, and the order of keys."""
