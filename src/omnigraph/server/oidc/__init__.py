"""Bearer tokens of an identity provider: its settings, its signing keys, and its tokens.

Nothing of a token, neither a claim nor a part of its text, is logged or named in an error.
"""
