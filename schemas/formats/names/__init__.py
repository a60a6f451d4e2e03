"""Names of fields in upstream records, and which declared columns are among them."""
