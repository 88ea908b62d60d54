"""The keys that sign the cursors of a served graph, for a server that may not write them."""

from __future__ import annotations

from omnigraph.api.cursor_keys import StoredCursorKeys
from omnigraph.api.cursors import CursorKey
from omnigraph.errors import StorageDenied
from omnigraph.server.errors import RequestRefused


class ServedCursorKeys(StoredCursorKeys):
    """The keys of one graph.

    A replica that can only read the storage signs with the key of the servers that write. It makes
    no key of its own: its other workers, and it after a restart, would refuse such cursors.
    """

    def signing(self) -> CursorKey:
        """The key for new cursors; refuses a page if there is none and none can be written."""
        try:
            return super().signing()
        except StorageDenied:
            raise RequestRefused(
                503,
                "no_cursor_key",
                "the graph has no key for the cursors of pages, and this server may not write one",
                hint="let a server that may write to the storage answer a page once, or ask "
                "without page_size",
            ) from None
