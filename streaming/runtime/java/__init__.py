"""The Java program, its jars, and the class archive of a rehearsed start."""
