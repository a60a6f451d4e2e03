"""Schemas of other writers, as a registry has them: their types, and what their values mean."""
