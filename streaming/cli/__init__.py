"""The command line: one module a sub-command, each with a function `command`."""
