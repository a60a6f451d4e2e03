"""Kinds of scans, sinks, barriers and starts that a configuration chooses from. Their code is in `streaming`."""
