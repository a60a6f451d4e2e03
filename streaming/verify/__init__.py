"""`verify`: checks any output topic against its upstream, and shares only the record formats with the service.

history       partitions as intervals closed by barriers
records       records in one form, identity and place of keys, what a job shows of a row
fold          the upstream folded into a table
positions     how far each vnode is, as published
expectation   what must be there of a table, and what is wrong with what is there
laws          what must be there of an interval: of the table, or of the upstream's records
checker       the law, interval by interval
sources       both topics, read from Kafka
judge         the entry: `verify_topics`
"""
