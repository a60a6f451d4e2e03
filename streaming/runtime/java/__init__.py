"""Which Java runs, with which jars, and what it keeps of a rehearsed start."""
