"""Change events of a database, as pure functions: which are redelivered (`redelivery`), and a table's start from it.

For the start, chunks that were read are merged with the change events.
`state.values.reading` is how far the table was read and released. `verdicts` decides what becomes of an event, by
whether the rows of a chunk hold it already; `fold` brings the events that the rows of a chunk lack into them.
"""
