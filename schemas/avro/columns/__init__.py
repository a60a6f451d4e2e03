"""Whole columns of Avro records, read: the reverse of `schemas.avro.columnar`."""
