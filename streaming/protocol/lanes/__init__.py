"""The lanes of a batch, which are run, and run again, until the outcome of every one is known."""
