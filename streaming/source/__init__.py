"""What comes in: upstream records, their barriers, and the injector of barriers."""
