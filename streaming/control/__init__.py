"""Requests to a running service, and what may be seen of it from its state."""
