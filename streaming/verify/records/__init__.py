"""The checker's own reading of records: bytes, keys, vnodes and filters, none of it shared with the service."""
