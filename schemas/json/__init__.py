"""JSON forms of records: barriers beside the data (`barriers`), and rows (`scan`, `values`)."""
