"""What is published beside the code: a bill of materials, and questions to OSV about what it lists."""
