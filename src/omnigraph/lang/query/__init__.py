"""The query language: text to syntax tree, checked query, lint report and formatted text."""
