"""Opens a graph. Modules that only writers need are imported only for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.commit.manifest import list_branches
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import contract_at
from omnigraph.commit.store import GraphStore
from omnigraph.errors import SchemaDrift

if TYPE_CHECKING:
    from omnigraph.commit.recovery import Recovered


def open_contract(store: GraphStore, *, writable: bool) -> tuple[Contract, list[Recovered]]:
    """Check the format, and for a writable handle recover from crashes.

    A read-only handle recovers nothing, and reads the schema of the newest state from the manifest.
    """
    if not store.root.is_local:
        # An unreachable server fails here in seconds; Lance waits for minutes.
        store.schema_files.present()
    if not writable:
        newest = store.manifest(None).current()
        return contract_at(store, _load_to_read(store), newest), []
    from omnigraph.commit.checked_writes import ensure_readable
    from omnigraph.commit.lifecycle import recover
    from omnigraph.commit.relocation import heal_if_moved
    from omnigraph.commit.removal import finish_removals
    from omnigraph.commit.sidecar import FOLDER

    ensure_readable(store, None)
    heal_if_moved(store)
    # One listing for sidecars, claims and removals: usually there are none.
    leftovers = (".json", ".branch", ".cleanup")
    is_clean = not any(name.endswith(leftovers) for name in store.objects.list(FOLDER))
    recovered = recover(store, full=True, is_clean=is_clean)
    if not is_clean:
        finish_removals(store)
    if len(store.schema_files.present()) < 3:
        return store.schema_files.bootstrap(list_branches(store.datasets) == ["main"]), recovered
    return store.schema_files.load(), recovered


def _load_to_read(store: GraphStore) -> Contract:
    """The schema files; a graph without other branches than main may lack derived ones."""
    try:
        return store.schema_files.load()
    except SchemaDrift:
        if len(store.schema_files.present()) == 3 or list_branches(store.datasets) != ["main"]:
            raise
        return store.schema_files.load(allow_missing=True)
