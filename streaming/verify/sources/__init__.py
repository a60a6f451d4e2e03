"""The records to check: topics on a broker, with barriers beside their data merged into it."""
