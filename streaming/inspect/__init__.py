"""A configuration for a topic that has none yet, guessed from the topic's first records."""
