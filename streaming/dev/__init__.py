"""What makes, measures or breaks a service; none of it is needed by one."""
