"""`backfill doctor`: checks of what a service needs of its surroundings, before it runs or while it does."""
