"""Parts of the table of errors, by what they are about."""
