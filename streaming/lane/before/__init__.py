"""The row before: what a key held at the start of a batch, for upstreams whose records hold only the row after."""
