"""Values of columns in JSON and Avro, read by `json` and byte by byte; nothing of it is the service's.

invalid           the error for what a form forbids
json_text         JSON as Python values
json_values       ... as values of columns
connect           what Kafka Connect and Debezium say of values, and what stands in place of one
avro_bytes        Avro's encoding, and rows in the forms of the contract
writer_schemas    schemas of a registry, and values that are passed over
avro_fields       records by such a schema
"""
