"""What is published beside the code: a bill of materials, and a check of what it lists against known advisories."""
