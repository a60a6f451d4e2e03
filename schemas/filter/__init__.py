"""The filter of a job: a small allow-listed part of SQL, parsed to values, with columnar evaluation.

    grammar.lark   the language
    ast            a filter as a tree of values, with its canonical text
    parse          text to filter, within limits
    columnar       filter over Arrow columns, as Spark would decide row by row

A filter is never passed on as SQL text.
"""
