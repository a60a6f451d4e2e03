"""What jobs write to: the door (`protocol`), the kinds (`kinds`), and the modules of each kind."""
