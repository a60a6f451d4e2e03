"""What a configuration chooses by its kind, but for formats: each kind's settings. What carries it out is elsewhere."""
