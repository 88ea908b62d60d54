"""Repair of a graph whose directory was moved or copied.

The version files of its branches still contain the original location. Reads are correct
nevertheless, see ``storage.tables.datasets``; a writer could build on files elsewhere, so a
read-write open rewrites the version files first. The file that an open checks is rewritten last, so
the next open continues after a crash.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.store import GraphStore
from omnigraph.errors import StorageCorrupt, StorageMissing
from omnigraph.logs import logger
from omnigraph.storage.checksums import sum_of
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.first_read import damaged_file
from omnigraph.storage.lance_format.addresses import GraphAddresses, parse_reference
from omnigraph.storage.lance_format.manifests import base_addresses, replace_addresses
from omnigraph.storage.objects.copying import sync_directories, write_file
from omnigraph.storage.objects.paths import branch_of_reference, version_file, version_number

_LOG = logger(__name__)

MOVED_LEASE = "moved"
"""The lease for rewriting the version files of branches."""
_VERSIONS = "/_versions/"
_TREE = "/tree/"
_TABLES = ("nodes", "edges", MANIFEST)
_AT_ONCE = 8


def heal_if_moved(store: GraphStore) -> int:
    """Make branches refer to the current location; returns the number of rewritten files.

    Costs one listing if there is no branch, and the read of one file if there is.
    """
    if not _is_moved(store):
        return 0
    with store.leases.acquire([MOVED_LEASE], store.timeouts.lease):
        # Another process may have done it concurrently.
        return _heal(store) if _is_moved(store) else 0


def heal_everything(store: GraphStore) -> int:
    """The same for every file, without the check of the last one."""
    with store.leases.acquire([MOVED_LEASE], store.timeouts.lease):
        return _heal(store)


def misplaced(store: GraphStore) -> int:
    """The number of version files of branches that refer to another location."""
    home, count = GraphAddresses(store.root), 0
    for paths in _by_branch(store).values():
        for path in paths:
            # It may have been deleted with its branch since it was listed.
            with suppress(StorageMissing):
                count += not _is_home(store, home, path)
    return count


def _is_moved(store: GraphStore) -> bool:
    """Check the oldest version file of the last branch, which is rewritten last."""
    home = GraphAddresses(store.root)
    for folder in reversed(_manifest_branches(store)):
        first = f"{folder}/{version_file(_forked_at(store, folder))}"
        with suppress(StorageMissing):
            return not _is_home(store, home, first)
        # Cleanup removed it. File names count down, so the oldest version is listed last.
        left = _version_names(store.objects.list(f"{folder}/_versions"))
        # The branch may be deleted meanwhile.
        with suppress(StorageMissing):
            if left:
                return not _is_home(store, home, f"{folder}{_VERSIONS}{left[-1]}")
    return False


def _forked_at(store: GraphStore, folder: str) -> int:
    """The parent version that a branch was created from, which is its own first one."""
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
    paths: dict[str, list[str]] = {}
    for top in _TABLES:
        for path in store.objects.sizes_below(top):
            folder, middle, name = path.rpartition(_VERSIONS)
            if middle and _TREE in folder and _version_names([name]):
                paths.setdefault(folder, []).append(path)
    return paths


def _heal(store: GraphStore) -> int:
    home = GraphAddresses(store.root)
    branches = _by_branch(store)
    tables = [folder for folder in branches if not folder.startswith(f"{MANIFEST}/")]
    last = _manifest_branches(store)
    # Leftovers without a reference come before the branches that are checked.
    first = [folder for folder in branches if folder not in {*tables, *last}]
    paths = [branches[folder] for folder in tables]
    done = sum(ThreadExecutor(_AT_ONCE).run(partial(_rewrite_files, store, home), paths))
    for folder in (*sorted(first), *last):
        done += _rewrite_files(store, home, branches.get(folder, []))
    store.datasets.checksums.record()
    store.datasets.start_over()
    store.manifests.forget()
    if done:
        _LOG.info("'%s' was moved or copied: %d files of branches", store.root.uri, done)
    return done


def _rewrite_files(store: GraphStore, home: GraphAddresses, paths: list[str]) -> int:
    """Rewrite files where needed, newest first: a reader of one version trusts the later ones.

    The new checksum is recorded first, so that a file rewritten by a process that died does not
    count as damaged. A damaged file is not rewritten: its bytes must not become valid.
    """
    done = []
    for path in sorted(paths):
        if store.datasets.first_reads.is_damaged_version(path):
            continue
        raw, new = _rewritten(store, home, path)
        if new != raw:
            folder, _, name = path.rpartition("/")
            store.datasets.checksums.note(folder, [name], {name: sum_of(new)})
            done.append(path)
    if done:
        store.datasets.checksums.record(now=True)
        for path in done:
            write_file(store.objects, path, _rewritten(store, home, path)[1])
        sync_directories(store.objects, done)
    return len(done)


def _rewritten(store: GraphStore, home: GraphAddresses, path: str) -> tuple[bytes, bytes]:
    """A version file as it is, and as it should be at this location."""
    raw = store.objects.read_bytes(path)
    return raw, replace_addresses(raw, path, partial(home.localize, location=_location(path)))


def _is_home(store: GraphStore, home: GraphAddresses, path: str) -> bool:
    if store.datasets.first_reads.is_damaged_version(path):
        raise damaged_file(path)
    location = _location(path)
    named = base_addresses(store.objects.read_bytes(path), path)
    return all(home.localize(base, location) == base for base in named)


def _location(path: str) -> str:
    return path.partition(_TREE)[0]
