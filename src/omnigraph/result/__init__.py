"""The result of a query, and its conversions."""
