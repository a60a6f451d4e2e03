"""How the lanes of a batch are run.

on_spark    a Spark job: decoded, exchanged by lane, one task each
quiet       by the service itself, where there is no record
"""
