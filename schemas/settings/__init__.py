"""The configuration file: its sections, what each may say, and the page that lists it."""
