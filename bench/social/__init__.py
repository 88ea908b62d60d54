"""The social network of ``bench/queries.py``, and those who answer questions about it."""
