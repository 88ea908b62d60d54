"""HTTP: single requests, and the client of an OmniGraph server on top of them."""
