"""Steering a service from outside: wishes for its jobs, and what its state says of them. No Spark here."""
