"""Upstream records as Spark columns: the door (`protocol`), and one module a kind.

Here and not beside the pure half of a format, as nothing below this room knows Spark; in this room, as only the
source decodes.
"""
