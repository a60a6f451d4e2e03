"""Formats of a topic's records: the interface (`protocol`), the kinds (`registry`), and a module or two for each kind.

Nothing here imports Spark.
"""
