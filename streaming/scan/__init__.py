"""Scans: the sources of a job's snapshot, read slice by slice while live changes go on."""
