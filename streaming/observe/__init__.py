"""What can be seen of a running service: the panel (state in memory), metrics, the HTTP API and its page."""
