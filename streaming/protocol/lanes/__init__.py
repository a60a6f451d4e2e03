"""How the lanes of a batch are run.

on_spark    a Spark job: decoded, exchanged by lane where it has to be, one task each
short       a Spark job without a query, where there are few records: each lane reads and decodes them itself
log_only    a Spark job that hands the records on as they are, where no job waits for them
quiet       by the service itself, where there is no record
"""
