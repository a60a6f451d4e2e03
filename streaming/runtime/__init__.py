"""The base of the service: Java, jars, the Spark session, and the places of its files."""
