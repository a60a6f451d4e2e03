"""What helps at the prompt of a shell."""
