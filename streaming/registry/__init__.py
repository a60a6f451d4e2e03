"""Schemas of records, by id: asked of the registry once, and kept in the state for good."""
