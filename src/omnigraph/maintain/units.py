"""Counts, sizes, durations and times as text, the same everywhere."""

from __future__ import annotations

from datetime import UTC, datetime


def plural(number: int, noun: str) -> str:
    """
    >>> plural(1, "table"), plural(2, "table")
    ('1 table', '2 tables')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_bytes(size: int) -> str:
    """
    >>> [format_bytes(n) for n in (0, 1023, 1536, 5 << 30)]
    ['0 B', '1023 B', '1.5 KiB', '5.0 GiB']
    """
    if size < 1024:
        return f"{size} B"
    value, unit = size / 1024, "KiB"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.1f} {unit}"


def format_duration(seconds: int) -> str:
    """
    >>> [format_duration(n) for n in (5, 90, 7200, 400_000)]
    ['5 s', '1 min', '2 h', '4 d']
    """
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def format_time(time: datetime) -> str:
    """
    >>> format_time(datetime(2026, 11, 16, 12, 48, 20, tzinfo=UTC))
    '2026-11-16 12:48:20 UTC'
    """
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
