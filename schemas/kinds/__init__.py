"""What is chosen by its kind in a configuration or a job, and has no room of its own: barriers and scans."""
