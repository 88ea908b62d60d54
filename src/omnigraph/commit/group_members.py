"""Reading commits of a group: what a member changed, and the state that it was built upon.

All members share one version of each table. So a member is compared by the state before the group
and the state after it, restricted to the ids that it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.commit.metadata import GROUP, CommitMetadata, Group
from omnigraph.commit.rows import CommitRow

WrittenIds = Mapping[str, tuple[str, ...]]
"""The ids that a commit wrote, by the keys that its tables had."""


def group_of(row: CommitRow) -> Group | None:
    """The group of a commit; none for one that was committed by itself."""
    return CommitMetadata.of(row).group if GROUP in row.extra else None


def written_ids(row: CommitRow) -> WrittenIds | None:
    """The ids to which the changes of a commit are restricted; none if they are not."""
    group = group_of(row)
    return None if group is None else group.ids


def group_members(chain: Sequence[CommitRow], position: int) -> list[CommitRow]:
    """The group of a commit in a chain of first parents, oldest first; itself if it has none."""
    group = group_of(chain[position])
    if group is None:
        return [chain[position]]
    first = max(position - group.index, 0)
    near = chain[first : first + group.size]
    return [row for row in near if (other := group_of(row)) is not None and other.id == group.id]


def commit_before(chain: Sequence[CommitRow], position: int) -> CommitRow | None:
    """The commit that a commit is compared with: the one before it, or before its group."""
    group = group_of(chain[position])
    before = position - 1 if group is None else position - group.index - 1
    return chain[before] if before >= 0 else None
