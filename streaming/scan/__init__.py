"""The door for scans: what a job's snapshot is read from, slice by slice, beside the live changes."""
