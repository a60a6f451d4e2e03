"""Formats that only outputs have: the models, and what encodes for them, which they import when it is needed."""
