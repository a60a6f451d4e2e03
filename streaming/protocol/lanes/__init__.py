"""The lanes of a batch: how they are run, and run again, until the outcome of every one is known."""
