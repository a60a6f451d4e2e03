"""Records in JSON as structs: typed decoders, and values that have lost nothing for what these do not take."""
