"""Raw upstream records: their vnodes, and how they are decoded."""
