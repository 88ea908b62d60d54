"""Small objects and whole files: addresses, paths, listings, conditional writes, copies."""
