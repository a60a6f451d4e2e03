"""What goes out: transactions on output topics, and what their tails tell."""
