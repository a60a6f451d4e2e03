"""Test events: an invented table, its changes, and the records that a topic gets of them."""
