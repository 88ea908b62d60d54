"""A graph behind a server, with the interface of ``Graph``."""
