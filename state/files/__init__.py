"""Small files of a state, each there as a whole or not at all."""
