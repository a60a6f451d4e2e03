"""The work of a lane task in a batch: read its slices, order its changes, send one Kafka transaction."""
