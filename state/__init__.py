"""The state of a service: vnodes, progress, the journal, the replica. Imports `schemas` only."""
