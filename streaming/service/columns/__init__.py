"""Columns that schemas of records give a table, and take from it."""
