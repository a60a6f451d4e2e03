"""Control requests to a running service, and its status from the state folder."""
