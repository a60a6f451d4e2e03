"""A table of PostgreSQL, read in chunks while Debezium sends its events.

`catalog` reads the facts, `checks` refuses what can't be read, `reader` reads one chunk, `copying` all of them.
"""
