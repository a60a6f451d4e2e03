"""The decisions: pure functions and values. No Spark, no Kafka, no Delta, no clock; the rest carries them out."""
