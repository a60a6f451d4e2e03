"""The output of a running service: a screen for a person, log lines for programs."""
