"""Starts of a replica: from a Delta table, copied in parts that are remembered, or from a database."""
