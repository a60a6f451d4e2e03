"""Sinks of jobs: the contract (`protocol`), the registry of kinds (`kinds`), and the modules of each kind."""
