"""Commands for the jobs of a running service."""
