"""The start of a table from a database, decided without either: chunks that are read meet the events of the changes.

How far the table was read, and up to which key a barrier may tell of it, is `state.values.reading`. `verdicts` is what
becomes of an event, by whether the rows of a chunk hold it already; `fold` the rows of a chunk with the events that
they lack.
"""
