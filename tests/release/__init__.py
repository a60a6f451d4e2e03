"""Publications next to the code: a bill of materials, and questions to OSV about its components."""
