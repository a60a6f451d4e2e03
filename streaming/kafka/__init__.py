"""Clients of Kafka: settings, topics, transactions, and whole columns handed to librdkafka."""
