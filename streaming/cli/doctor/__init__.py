"""`backfill doctor`: what a service needs of its surroundings, looked at before it runs or while it does."""
