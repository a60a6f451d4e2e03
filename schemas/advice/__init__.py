"""The table of errors: its parts by what they are about, and the page that is written from it."""
