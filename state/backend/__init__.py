"""What the state lies on: a disk of this machine, whose writes are waited for, or an object store."""
