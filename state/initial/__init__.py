"""What fills a replica at its start: a Delta table, copied in parts that are remembered."""
