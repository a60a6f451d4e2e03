"""What the records of a topic look like: the door (`protocol`), the kinds (`registry`), and one module or two a kind.

Nothing here knows Spark.
"""
