"""The service: pure core, lanes, micro-batch handler, runtime, command line."""
