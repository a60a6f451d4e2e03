"""Change events of the format `debezium`, one by one: what encodings have in common (`rows`), and a module for each."""
