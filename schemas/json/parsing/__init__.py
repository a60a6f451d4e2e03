"""A JSON text as values that have lost nothing, as the strict twins read it; and texts within, by whole columns."""
