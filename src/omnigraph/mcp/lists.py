"""Lists that are longer than a result: their pages, and cursors that continue on the same state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.api.cursors import CursorScope, PageCursor, view_mark
from omnigraph.errors import HistoryGone
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.results import PAGING, TOO_LONG, bounded
from omnigraph.plan.view import WHOLE, View


class ListReader:
    """The list of one call of a tool, from the place of its cursor on."""

    def __init__(self, context: AgentContext, tool: str, given: Mapping[str, Any]) -> None:
        bound = {
            name: value
            for name, value in given.items()
            if name not in ("cursor", "limit") and value is not None
        }
        self._context = context
        self._limits = context.limits(given.get("limit"))
        policy = context.graph._handle.policy_digest
        self._scope = CursorScope.of(f"tool {tool}", None, bound, context.actor, policy)
        cursor = given.get("cursor")
        self._position = (
            None if cursor is None else PageCursor.parse(cursor, context.cursors, self._scope)
        )

    @property
    def offset(self) -> int:
        """The number of items before this page."""
        return 0 if self._position is None else self._position.offset

    @property
    def most(self) -> int:
        """So many items, from the beginning of the list, are enough for this page."""
        return self.offset + self.room

    @property
    def room(self) -> int:
        """So many items, from the place of the cursor on, are enough for this page."""
        return self._limits[0] + 1

    @property
    def state(self) -> str | None:
        """The state of the first page, as its cursor names it; ``None`` for a first page."""
        return None if self._position is None else self._position.commit

    def page(
        self, name: str, items: Sequence[Any], state: str | None, view: View = WHOLE
    ) -> dict[str, Any]:
        """The page of a list from its beginning; see ``rest``."""
        return self.rest(name, items[self.offset :], state, view)

    def rest(
        self, name: str, items: Sequence[Any], state: str | None, view: View = WHOLE
    ) -> dict[str, Any]:
        """The page of a list from the place of the cursor; ``state`` names what it was read from.

        Raises ``HistoryGone`` if that is another state than that of the first page.
        """
        if self._position is not None:
            self._position.check_view(view)
            if self._position.commit != (state or ""):
                raise HistoryGone(
                    "the list has changed since its first page", hint="begin again without a cursor"
                )
        kept, is_cut = bounded(items, self._limits)
        data: dict[str, Any] = {name: kept, "truncated": is_cut}
        if is_cut and kept:
            next_page = PageCursor(
                self._scope, state or "", self.offset + len(kept), 0, view_mark(view)
            )
            data |= {"cursor": next_page.text(self._context.cursors), "note": PAGING}
        elif is_cut:
            data["note"] = TOO_LONG
        return data
