"""Fields of an upstream's first and newest rows, against the declared columns."""
