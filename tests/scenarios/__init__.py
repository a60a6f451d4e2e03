"""Scenarios: scripts of situations, each with the output that they must give (docs/how-it-works.md#scenarios)."""
