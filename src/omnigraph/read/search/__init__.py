"""Search inside one table: words, ranks, vectors, and their fusion."""
