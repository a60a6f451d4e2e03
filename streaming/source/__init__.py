"""The input: upstream records, their barriers, and the injector of barriers."""
