"""Exactly once: the batch, the order of its effects, and the recovery of one that died."""
