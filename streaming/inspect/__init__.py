"""A topic that nobody has declared: what its first records look like, as the beginning of a configuration."""
