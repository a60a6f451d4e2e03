"""A columnar reader of Avro records: the reverse of `schemas.avro.columnar`."""
