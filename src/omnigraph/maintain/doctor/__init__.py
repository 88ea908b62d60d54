"""The health of a graph: facts, advice, the page."""
