"""The injector: what writes an upstream's barriers, with the requests and the claim that ride on them."""
