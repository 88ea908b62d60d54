"""The one place that reads the environment.

A setting exists here only when something uses it. Whoever needs one takes a ``Settings`` from
its caller; only the edges of the program (the command line today) build one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_TRUE = frozenset({"1", "true", "yes", "on"})


def _variable(name: str) -> Any:
    return field(default=False, metadata={"variable": name})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says.

    >>> Settings.from_environ({"OMNIGRAPH_DEBUG": "1"}).debug
    True
    """

    debug: bool = _variable("OMNIGRAPH_DEBUG")
    """Show the Python traceback when OmniGraph itself fails."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """The settings of this process, or those of the given mapping."""
        values = os.environ if environ is None else environ
        return cls(
            **{
                setting.name: values.get(setting.metadata["variable"], "").strip().lower() in _TRUE
                for setting in fields(cls)
            }
        )

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """The names of every environment variable that is read."""
        return tuple(setting.metadata["variable"] for setting in fields(cls))
