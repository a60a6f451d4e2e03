"""Avro to the byte: values, records and whole columns, without a schema in front of each record."""
