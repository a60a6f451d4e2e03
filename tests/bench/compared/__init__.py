"""Cases that hold ways to do the same thing against each other in one run."""
