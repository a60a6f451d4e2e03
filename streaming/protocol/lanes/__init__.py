"""How the lanes of a batch are run.

on_spark    a Spark job: decoded, exchanged by lane where it has to be, one task each
quiet       by the service itself, where there is no record
"""
