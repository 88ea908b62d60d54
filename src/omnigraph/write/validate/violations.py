"""Violations of schema rules, and their wording."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from omnigraph.errors import OmniGraphError
from omnigraph.lang.values.spelling import key_text


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule, and the row that violates it.

    ``row`` is its position among the rows of the delta; none for a committed row.
    """

    error_class: type[OmniGraphError]
    table_key: str
    row_id: str | None
    message: str
    row: int | None = None
    hint: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def error(self) -> OmniGraphError:
        """The violation as an error."""
        details = {"table_key": self.table_key, "id": self.row_id, **self.details}
        return self.error_class(self.message, hint=self.hint, details=details)


def shown(value: Any) -> str:
    """A value as messages show it.

    >>> shown(1.5), shown(float("nan")), shown(True), shown(datetime(2024, 5, 1, 10))
    ('1.5', 'NaN', 'true', '2024-05-01T10:00:00.000Z')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return key_text(value) if isinstance(value, datetime) else str(value)


def named(columns: tuple[str, ...]) -> str:
    """Columns as messages show them: one bare, several in parentheses."""
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
