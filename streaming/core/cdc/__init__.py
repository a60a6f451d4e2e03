"""The start of a table from a database, as pure functions: chunks that were read are merged with the change events.

`state.values.reading` is how far the table was read and released. `verdicts` decides what becomes of an event, by
whether the rows of a chunk hold it already; `fold` brings the events that the rows of a chunk lack into them.
"""
