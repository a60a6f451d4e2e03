"""The demo: the whole service on one machine, with live load, judged at its end."""
