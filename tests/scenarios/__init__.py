"""Scenarios: scripts of situations, each with the output that they must give (CONTRIBUTING.md#scenarios)."""
