"""What is remembered: vnodes, progress, the journal, the replica. Imports `schemas` only."""
