"""Search in one table: text, BM25 and vector search, and the fusion of rankings."""
