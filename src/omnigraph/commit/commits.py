"""Commits and tags as the public API returns them. Only plain data.

A client of a server builds them without the libraries that a graph needs.
"""

from __future__ import annotations

from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """The position of a commit in a group, whose commits were published at once.

    ``id`` is the last commit of the group, ``index`` counts from 0. There is one state of the graph
    for all of them, that after the last.
    """

    id: str
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the graph. ``created_at`` is in microseconds since 1970."""

    commit_id: str
    branch: str
    version: int
    created_at: int
    parent: str | None
    merged_parent: str | None
    actor: str | None
    completes: tuple[str, ...] = ()
    """The interrupted commits that this recovery completed."""
    kind: str | None = None
    """The kind of write: ``load``, ``merge``, ``revert`` and so on; ``None`` if unknown."""
    group: CommitGroup | None = None
    """Its group; ``None`` for a commit that was published by itself."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a commit."""

    name: str
    commit_id: str
    created_at: int
    actor: str | None
    shows: str | None = None
    """The commit whose state it shows, if that is a later one of the same group."""
