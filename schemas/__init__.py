"""Values that cross a boundary: the table, the records on the topics, jobs, configuration, errors.

Nothing here imports `state` or `streaming`; both build on these values.
"""
