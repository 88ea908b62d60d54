"""A graph whose directory was moved, or copied beside the original.

The version files of its branches still name the place that it came from. Reading is right all the
same, see ``storage.datasets``; a writer could build on files elsewhere, so whoever opens such a
graph to write puts the files right first. They are rewritten one by one, so what a crash
interrupts is gone on with at the next opening: one file is rewritten last, and tells.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.store import GraphStore
from omnigraph.errors import StorageCorrupt, StorageMissing
from omnigraph.logs import logger
from omnigraph.storage.checksums import digest_of
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.first_read import damaged_file
from omnigraph.storage.lance_format.addresses import GraphAddresses
from omnigraph.storage.lance_format.manifests import base_addresses, replace_addresses
from omnigraph.storage.lance_format.names import manifest_name, version_number
from omnigraph.storage.lance_format.references import parse_reference
from omnigraph.storage.objects.copying import sync_directories, write_file
from omnigraph.storage.objects.graph_paths import branch_of_reference

_LOG = logger(__name__)

MOVED_LEASE = "moved"
"""The right to rewrite the version files of branches."""
_VERSIONS = "/_versions/"
_TREE = "/tree/"
_TABLES = ("nodes", "edges", MANIFEST)
_AT_ONCE = 8


def heal_if_moved(store: GraphStore) -> int:
    """Make branches name the place where the graph is; gives how many files that took.

    Costs nothing to speak of where there is no branch, and the look at one file where there is.
    """
    if not _is_moved(store):
        return 0
    with store.leases.acquire([MOVED_LEASE], store.timeouts.lease):
        # Somebody else may have done it while this process waited.
        return _heal(store) if _is_moved(store) else 0


def heal_everything(store: GraphStore) -> int:
    """The same for every file, whatever the one says that tells."""
    with store.leases.acquire([MOVED_LEASE], store.timeouts.lease):
        return _heal(store)


def misplaced(store: GraphStore) -> int:
    """How many version files of branches name another place."""
    home = GraphAddresses(store.root)
    return sum(
        _is_away(store, home, path) for paths in _by_branch(store).values() for path in paths
    )


def _is_moved(store: GraphStore) -> bool:
    """Look at the oldest version file of the last branch: healing comes to it at the end."""
    home = GraphAddresses(store.root)
    for folder in reversed(_manifest_branches(store)):
        first = f"{folder}{_VERSIONS}{manifest_name(_forked_at(store, folder))}"
        with suppress(StorageMissing):
            return not _is_home(store, home, first)
        # Cleanup removed it. Lance counts down, so that the oldest is the last.
        left = _version_names(store.objects.list(f"{folder}/_versions"))
        # And a branch may go while it is looked at.
        with suppress(StorageMissing):
            if left:
                return not _is_home(store, home, f"{folder}{_VERSIONS}{left[-1]}")
    return False


def _forked_at(store: GraphStore, folder: str) -> int:
    """The version of its parent that a branch begins with, which is its own first one."""
    path = branch_reference(folder.partition(_TREE)[2])
    try:
        return parse_reference(store.objects.read(path), path).parent_version
    except (StorageMissing, StorageCorrupt):
        return 0


def _manifest_branches(store: GraphStore) -> list[str]:
    names = store.objects.list(f"{MANIFEST}/_refs/branches")
    branches = (branch_of_reference(name) for name in names if name.endswith(".json"))
    return sorted(f"{MANIFEST}{_TREE}{branch}" for branch in branches)


def _version_names(names: list[str]) -> list[str]:
    return sorted(name for name in names if version_number(name) is not None)


def _by_branch(store: GraphStore) -> dict[str, list[str]]:
    """The version files of all branches of all tables, by the directory of the branch."""
    found: dict[str, list[str]] = {}
    for top in _TABLES:
        for path in store.objects.sizes_below(top):
            folder, middle, name = path.rpartition(_VERSIONS)
            if middle and _TREE in folder and _version_names([name]):
                found.setdefault(folder, []).append(path)
    return found


def _heal(store: GraphStore) -> int:
    home = GraphAddresses(store.root)
    branches = _by_branch(store)
    tables = [folder for folder in branches if not folder.startswith(f"{MANIFEST}/")]
    last = _manifest_branches(store)
    # What is left of a branch without a reference comes before those that can tell.
    first = [folder for folder in branches if folder not in {*tables, *last}]
    paths = [branches[folder] for folder in tables]
    done = sum(ThreadExecutor(_AT_ONCE).run(partial(_put_right, store, home), paths))
    for folder in (*sorted(first), *last):
        done += _put_right(store, home, branches.get(folder, []))
    store.datasets.checksums.record()
    store.datasets.start_over()
    store.manifests.forget()
    if done:
        _LOG.info("'%s' was moved or copied: %d files of branches", store.root.uri, done)
    return done


def _put_right(store: GraphStore, home: GraphAddresses, paths: list[str]) -> int:
    """Rewrite what has to be, the newest first: who reads one version takes later ones as good.

    What a file will be is recorded before: who finds it rewritten by a process that died must not
    take it for damaged. One that is damaged stays so: its bytes must not become the right ones.
    """
    done = []
    for path in sorted(paths):
        if store.datasets.is_damaged_version(path):
            continue
        raw, new = _rewritten(store, home, path)
        if new != raw:
            folder, _, name = path.rpartition("/")
            store.datasets.checksums.note(folder, [name], {name: digest_of(new)})
            done.append(path)
    if done:
        store.datasets.checksums.record(now=True)
        for path in done:
            write_file(store.objects, path, _rewritten(store, home, path)[1])
        sync_directories(store.objects, done)
    return len(done)


def _rewritten(store: GraphStore, home: GraphAddresses, path: str) -> tuple[bytes, bytes]:
    """A version file as it is, and as it has to be here."""
    raw = store.objects.read_bytes(path)
    return raw, replace_addresses(raw, path, partial(home.localize, location=_location(path)))


def _is_away(store: GraphStore, home: GraphAddresses, path: str) -> bool:
    with suppress(StorageMissing):
        return not _is_home(store, home, path)
    # It went with its branch since it was listed.
    return False


def _is_home(store: GraphStore, home: GraphAddresses, path: str) -> bool:
    if store.datasets.is_damaged_version(path):
        raise damaged_file(path)
    location = _location(path)
    named = base_addresses(store.objects.read_bytes(path), path)
    return all(home.localize(each, location) == each for each in named)


def _location(path: str) -> str:
    return path.partition(_TREE)[0]
