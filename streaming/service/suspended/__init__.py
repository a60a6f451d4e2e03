"""A suspended table: a fault of its data leaves the process up, which is told how to go on."""
