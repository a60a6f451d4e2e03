"""Observation of a running service: status in memory, metrics, traces, the HTTP API and its page."""
