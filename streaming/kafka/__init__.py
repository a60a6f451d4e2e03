"""Clients of Kafka: settings, topics, transactions, and whole columns passed to librdkafka."""
