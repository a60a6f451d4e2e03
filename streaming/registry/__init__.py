"""Schemas of records, by id: requested of the registry once, and kept in the state for good."""
