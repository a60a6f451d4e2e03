"""Settings of what a configuration chooses by kind, formats aside. The code behind each kind is in `streaming`."""
