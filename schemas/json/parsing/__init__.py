"""A JSON text as values that have lost nothing: what the strict twins read, one record at a time."""
