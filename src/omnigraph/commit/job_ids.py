"""The job that a thread works for: its id becomes part of the commits that the thread makes.

So whoever finds the record of a job whose process died can tell whether its commit was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from omnigraph.commit.metadata import JOB

if TYPE_CHECKING:
    from omnigraph.commit.store import GraphStore

_CURRENT: ContextVar[str | None] = ContextVar("job", default=None)


def current_job() -> str | None:
    """The job of this thread, if it works for one."""
    return _CURRENT.get()


@contextmanager
def working_for(job_id: str) -> Iterator[None]:
    """Mark the commits of this thread as those of a job.

    >>> with working_for("01J"):
    ...     current_job()
    '01J'
    """
    token = _CURRENT.set(job_id)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def commits_of_job(
    store: GraphStore, job_id: str, branches: list[str | None], since: int
) -> list[str]:
    """The ids of the commits of a job, oldest first; none is older than ``since`` (microseconds).

    A commit that a recovery completed counts, under its own id.
    """
    commits: dict[str, None] = {}
    for branch in branches:
        for row in reversed(store.manifest(branch).commits()):
            if row.created_at < since:
                break
            if row.extra.get(JOB) == job_id:
                commits[row.commit_id] = None
    return list(reversed(commits))
