"""Measuring the service as a user runs it: a real broker, the real command in a process of its own, real load.

Every figure comes with what it is compared to in the same run, for machines are shared and noisy. Nothing here is
a test: tests never assert times.
"""
