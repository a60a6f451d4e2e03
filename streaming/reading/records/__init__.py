"""Records of a topic in every form that upstreams and outputs have; nothing of it is the service's.

forms         the settings of a topic, and the content of a record
logs          where an event stands in the log of its database
upstreams     rows, events and deletes of an upstream, apart from their encoding
json_records  ... in JSON
avro_records  ... in Avro by a registry
outputs       records of an output
written       ... in the one form that they have
reader        the reader of a form
"""
