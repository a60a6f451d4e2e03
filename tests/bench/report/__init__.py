"""What a measurement is printed, kept and drawn as."""
