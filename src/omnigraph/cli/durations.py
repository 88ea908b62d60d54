"""Durations as users write them."""

from __future__ import annotations

import re

from omnigraph.errors import InputError

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "": 1}


def parse_duration(text: str | None) -> int | None:
    """A duration in seconds; none where none was given.

    >>> parse_duration("7d"), parse_duration("90"), parse_duration(None)
    (604800, 90, None)
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,18})([A-Za-z]*)", text.strip())
    if match is None:
        raise InputError(f"invalid duration '{text}'", hint="write it as 30m, 12h or 7d")
    if match[2] not in _SECONDS:
        raise InputError(f"unknown duration unit '{match[2]}'", hint="use s, m, h, d or w")
    return int(match[1]) * _SECONDS[match[2]]
