"""Avro to the byte: values, records and columnar encoding, without a schema in front of each record."""
