"""The configuration file: its sections, their keys, and the page that lists them."""
