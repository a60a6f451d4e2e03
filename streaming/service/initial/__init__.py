"""The start from another table: the offsets from which the topic is read, and the copy of the table."""
