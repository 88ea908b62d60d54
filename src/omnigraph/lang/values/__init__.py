"""Values of both languages: one codec per scalar, between JSON, Python, Arrow and text."""
