"""What identifies a version of a table physically."""

from __future__ import annotations

from typing import NamedTuple


class TableId(NamedTuple):
    """Where a table lies, whose copy of it, which version, and the tag of that version's file."""

    location: str
    path: str
    version: int
    e_tag: str
