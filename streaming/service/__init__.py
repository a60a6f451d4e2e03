"""The service: executes the plans of the core with Spark, Kafka and Delta, in the order of effects."""
