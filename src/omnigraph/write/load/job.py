"""The request of a load: the data and how to read it, and the destination of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.commit.names import check_actor
from omnigraph.errors import InputError
from omnigraph.progress import OnProgress, Progress
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.write.row_security import RowSecurity

LoadData: TypeAlias = Any
"""A path, several paths, an open binary file, tables or frames by type name, or records."""


class LoadMode(StrEnum):
    """What happens to existing rows."""

    MERGE = "merge"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class LoadJob:
    """The data of a load, and how it is read and checked."""

    data: LoadData
    mode: LoadMode = LoadMode.MERGE
    format: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    rejects: str | PathLike[str] | None = None
    max_rejects: int = 0
    strict_properties: bool = False
    on_progress: OnProgress | None = None
    allow_local_files: bool = False
    """Whether a Blob may name a local file, whose content is stored."""
    local_files: bool = True
    """Whether the data may be paths."""
    security: RowSecurity | None = None
    """Given if the actor may not see all rows of the branch."""

    def report(self, phase: str, records: int, rejected: int) -> None:
        """Call the progress callback, if there is one."""
        if self.on_progress is not None:
            self.on_progress(Progress(phase, records, 0, "records", {"rejected": rejected}))

    def report_tasks(self, phase: str, done: int, total: int) -> None:
        """Call the progress callback with the numbers of finished and of all tasks."""
        if self.on_progress is not None:
            self.on_progress(Progress(phase, done, total))


@dataclass(frozen=True, slots=True)
class LoadDestination:
    """The branch of a load and the conditions of its commit.

    A missing branch is created from ``from_branch``, unless ``before_fork`` raises; ``dry_run``
    checks and commits nothing.
    """

    branch: str
    from_branch: str | None = None
    actor: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    dry_run: bool = False
    before_fork: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.actor is not None:
            check_actor(self.actor)


def load_mode(mode: Any) -> LoadMode:
    """Parse the name of a load mode."""
    try:
        return LoadMode(mode)
    except ValueError:
        names = ", ".join(LoadMode)
        raise InputError(f"invalid load mode '{mode}'", hint=f"use one of {names}") from None
