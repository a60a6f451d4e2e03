"""Records in Avro by a schema registry as structs, by the schema that each record names."""
