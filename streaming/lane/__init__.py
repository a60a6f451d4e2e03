"""What one lane task does for a batch: read its slices, order its changes, send one Kafka transaction."""
