"""A suspended table: a fault of its data leaves the process up, which takes requests on how to go on."""
