"""What feeds an upstream topic: barriers, wishes from the control topic, and test events."""
