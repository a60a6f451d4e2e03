"""`verify`: checks any output topic against its upstream, and shares only the record formats with the service.

history       partitions as intervals closed by barriers
rows          rows and changes as bytes: cut, projected, compared
keys, vnode   identity, order and place of a key, computed anew
predicate     the filter, row by row
fold          the upstream folded into a table
positions     how far each vnode is, as published
expectation   what must be there of a table
laws          what must be there of an interval: of the table, or of the upstream's records
explain       what is wrong with what isn't
checker       the law, interval by interval
sources       both topics, read from Kafka
judge         the entry: `verify_topics`
"""
