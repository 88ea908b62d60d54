"""What one record of a text file may be at most: it is held in memory as a whole."""

from __future__ import annotations

LONGEST_RECORD = 256 << 20
"""Bytes of text."""
MOST_IGNORED = 1_000
"""Names of ignored properties that are told apart; the commit of a load may keep them."""
MOST_FIELDS = 65_536
"""Fields of a CSV row, each of which takes far more memory than the comma that ends it."""
