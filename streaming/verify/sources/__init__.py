"""What is judged, where it comes from: topics on a broker, barriers beside their data merged into it."""
