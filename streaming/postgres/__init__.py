"""A table of PostgreSQL, read in chunks beside the events that Debezium sends of it.

`catalog` finds out what is there, `checks` says what speaks against it, `reader` reads one chunk, `copying` all.
"""
