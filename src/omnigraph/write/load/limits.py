"""Limits of one record of a text file, which is kept in memory as a whole."""

from __future__ import annotations

LONGEST_RECORD = 256 << 20
"""Bytes of text."""
MOST_IGNORED = 1_000
"""Names of ignored properties that are counted separately; the commit of a load may keep them."""
MOST_FIELDS = 65_536
"""Fields of a CSV row, each of which takes far more memory than its comma."""
