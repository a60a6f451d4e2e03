"""The injector of an upstream's barriers, with the control requests and the claim that they carry."""
