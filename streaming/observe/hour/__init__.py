"""The last hour of a service, and how long its jobs have been as they are: kept in memory for the page and the API."""
