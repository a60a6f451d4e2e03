"""The checks of a service's configuration and surroundings: one list, which `doctor` prints and a start runs."""
