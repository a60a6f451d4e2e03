"""Barriers of an upstream: injected, found among its records, announced; and the requests that they carry."""
