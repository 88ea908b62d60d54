"""Reports the id of a commit before it is published, so that its outcome can be looked up."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

ON_INTENT: ContextVar[Callable[[str], None] | None] = ContextVar("on_intent", default=None)
"""Called in the thread of a write with the id of its commit; it neither blocks nor raises."""


def report_intent(commit_id: str) -> None:
    on_intent = ON_INTENT.get()
    if on_intent is not None:
        on_intent(commit_id)
