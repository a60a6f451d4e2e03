"""The service: carries out the plans of the core with Spark, Kafka and Delta, in the numbered order of effects."""
