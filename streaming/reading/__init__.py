"""Reading a topic of changes and barriers for people: decode, print, fold.

`verify` has a reader of its own, on purpose.
"""
