"""JSON forms of records: barriers in a separate topic (`barriers`), and rows (`scan`, `values`)."""
