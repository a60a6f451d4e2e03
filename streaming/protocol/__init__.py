"""Exactly once: the batch, the order of its effects, and how one that died is finished."""
