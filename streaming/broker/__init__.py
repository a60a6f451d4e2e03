"""The embedded broker: for the demo, a first try, and tests."""
