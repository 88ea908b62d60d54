"""Progress of long operations: loads, maintenance, backups and embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias

from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a long call, passed to its ``on_progress`` callback.

    >>> print(Progress("copying", 3, 12, "files", {"bytes": 4_096}))
    copying: 3 of 12 files, 4,096 bytes
    """

    phase: str
    """The current step, such as ``reading``, ``writing`` or ``copying``."""
    done: int = 0
    """The finished units of this phase."""
    total: int = 0
    """All units of this phase; 0 while their number is unknown."""
    unit: str = "tasks"
    detail: Mapping[str, int] = field(default_factory=dict)
    """Further counts, such as ``rejected`` records or copied ``bytes``."""

    def __str__(self) -> str:
        units = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}"
        counts = (f"{value:,} {name.replace('_', ' ')}" for name, value in self.detail.items())
        return ", ".join([f"{self.phase}: {units} {self.unit}", *counts])


OnProgress: TypeAlias = Callable[[Progress], None]
