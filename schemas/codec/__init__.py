"""Decoding of upstream records: encodings (JSON, Avro) times envelopes (change, upsert, debezium, append)."""
