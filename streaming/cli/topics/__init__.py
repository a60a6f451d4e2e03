"""Commands for topics: to write, read, check and serve them."""
