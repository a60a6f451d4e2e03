"""Topics read by a reader of their own, for `verify`, `consume` and `demo`: nothing of it is the service's.

values      values of columns, in JSON and Avro
records     records in every form
entries     records as they lie in partitions
barriers    barriers, and data merged with a topic of barriers
sources     partitions up to ends that can be moved
topic       a topic as it grows, as records and as a table

What is shared with the service is declared, not computed (tables and types, settings, error codes, plain values), and
the connection to the broker.
"""
