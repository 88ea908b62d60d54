"""``ResultPage``: some of the rows of a query, and the cursor of the next ones."""

from __future__ import annotations

from omnigraph.records import dataclass
from omnigraph.result.result import Result


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of the rows of a query. All pages show the same state of the graph."""

    result: Result
    """The rows."""
    cursor: str | None
    """Pass it to the same call for the rows after these; ``None`` after the last."""
    commit_id: str | None
    """The commit whose state is read."""
