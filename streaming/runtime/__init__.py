"""What the service stands on: Java, jars, the Spark session, a broker, and where files go."""
