"""JSON forms of records: those of barriers beside the data."""
