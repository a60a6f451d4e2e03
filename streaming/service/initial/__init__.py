"""A start from another table: from which offsets on the topic is read, and the copy of the table."""
