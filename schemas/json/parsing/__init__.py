"""A JSON text as exact values, as the strict reference decoders read it; and texts within, columnar."""
