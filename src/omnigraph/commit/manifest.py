"""The manifest of a graph, kept in memory: one dataset, with a branch per branch of the graph.

A repeated read probes once for a newer version and opens nothing. A newer version is reached by
reading only the fragments that it added. ``publisher`` decides what may be published.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.names import MAIN, SCHEMA_LOCK, branch_label, missing_branch
from omnigraph.commit.rows import (
    COMPLETES,
    FORMAT_KEY,
    FORMAT_VERSION,
    CommitRow,
    Row,
    SchemaRow,
    TagRow,
    VoidRow,
    from_arrow,
    from_records,
    head_id,
    to_records,
)
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.errors import (
    BranchNotFound,
    FormatRefused,
    GraphNotFound,
    HistoryGone,
    InputError,
    StorageCorrupt,
    StorageMissing,
)
from omnigraph.lang.fnv import fnv1a_64
from omnigraph.storage.objects.paths import branch_file
from omnigraph.storage.tables.branch_list import read_branches
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.ledger_reader import LedgerReader, RowAddress, has_text
from omnigraph.storage.tables.table import ROW_ADDRESS
from omnigraph.storage.tables.types import TableRef

if TYPE_CHECKING:
    from omnigraph.commit.announcements import Announced, Announcer, Follower
    from omnigraph.storage.tables.ledger import Ledger

MANIFEST = "__manifest"
KEY = "object_id"
_HISTORY = 16
LISTS_AFTER = 30.0
"""Seconds without a probe after which versions are listed: the next may have been removed."""
_T = TypeVar("_T")
_IS_COMMIT = has_text("object_type", CommitRow.kind)


class Manifest:
    """The manifest of one branch. Thread-safe."""

    def __init__(
        self,
        datasets: Datasets,
        branch: str | None,
        await_publisher: Callable[[str | None], None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.branch = branch
        self._on_change = on_change
        self._await_publisher = await_publisher
        self.ref = TableRef(MANIFEST, branch)
        self.datasets = datasets
        self._lock = threading.RLock()
        self._reader: LedgerReader | None = None
        self._state = ManifestState()
        self._version = 0
        self.fragments: frozenset[int] = frozenset()
        """The fragments of the newest version read so far."""
        self.head_address: RowAddress | None = None
        """Where the head of this branch is stored, if that is known."""
        self.writer: Ledger | None = None
        """The handle of the last publish, for the next one; used under the publish lease."""
        self._life: str | None = None
        self.cached_identity: str | None = None
        """``identity`` as it was last read, without a look at the store."""
        self._snapshot: Snapshot | None = None
        self._history: OrderedDict[int, Snapshot] = OrderedDict()
        self._looked = -math.inf
        self.announcer: Announcer | None = None
        """Announces what this process publishes to the readers beside it."""
        self.announced: Announced | None = None
        """What the writer beside this process has announced."""
        self._follower: Follower | None = None

    # -- reading -------------------------------------------------------------------------

    def current(self) -> Snapshot:
        """The newest snapshot, of this or another process."""
        return self._on_newest(lambda: self._snapshot)  # type: ignore[return-value]

    def current_in_memory(self) -> Snapshot | None:
        """The newest snapshot if it is in memory; ``None`` if it would have to be read.

        Looks at files, as ``current`` does, but waits for nobody. For local graphs.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._reader is None or time.monotonic() - self._looked > LISTS_AFTER:
                return None
            objects = self.datasets.objects
            if self.branch is not None:
                reference = objects.head(branch_reference(self.branch))
                if reference is None or reference.e_tag != self._life:
                    return None
            self._looked = time.monotonic()
            for _ in range(2):
                self._follow()
                if objects.head(self.ref.version_path(self._version + 1)) is None:
                    return self._snapshot
                if self._hides(self._version + 1, self._life):
                    return self._snapshot
                # It may have been revealed in this moment.
            return None
        finally:
            self._lock.release()

    def with_state(self, work: Callable[[ManifestState, int], _T]) -> _T:
        """Call a short function with the newest state and its version."""
        return self._on_newest(lambda: work(self._state, self._version))

    def with_cached_state(self, work: Callable[[ManifestState, int], _T]) -> _T:
        """The same on the state as it was last read or published, without a look at the store."""
        with self._lock:
            if self._snapshot is not None:
                return work(self._state, self._version)
        return self.with_state(work)

    def probed_paths(self) -> list[str]:
        """The files that are looked at to find out whether there is a newer version."""
        reference = [] if self.branch is None else [branch_reference(self.branch)]
        return [*reference, self.ref.version_path(self._version + 1)]

    def identity(self) -> str | None:
        """A digest that distinguishes this branch from others of its name, also in a copy."""
        if self.branch is None:
            return None
        return self._on_newest(lambda: self.cached_identity)

    def _on_newest(self, work: Callable[[], _T]) -> _T:
        """Call a function on the newest version.

        If the newest version is unreadable, its publisher may be about to withdraw it: this waits
        for the publisher, without blocking others.
        """
        try:
            with self._lock:
                self._refresh()
                return work()
        except StorageMissing:
            self._refuse_deleted()
            raise
        except StorageCorrupt:
            self._await_publisher(self.branch)
        with self._lock, self._detect_deletion():
            # Nothing read from the damaged version may be used.
            self._reader = None
            self._refresh()
            return work()

    def tags(self) -> dict[str, TagRow]:
        """The tags that name a commit, in alphabetical order."""
        tags = self.with_state(lambda state, _: dict(state.tags))
        return {name: tags[name] for name in sorted(tags) if tags[name].commit_id}

    def at_version(self, version: int) -> Snapshot:
        """The snapshot at an earlier version of this branch."""
        newest = self.current()
        if version == newest.manifest_version:
            return newest
        void = self.void(version)
        if void is not None:
            raise HistoryGone(
                f"version {version} of branch '{branch_label(self.branch)}' was never "
                f"acknowledged: it was damaged when it was written and replaced ({void.reason})",
                hint=f"version {version - 1} is the state before it",
                details={"version": version, "reason": void.reason},
            )
        with self._lock:
            snapshot = self._history.get(version)
        if snapshot is None or self.datasets.info(self.ref, version) is None:
            ledger = self._open_at(version)
            state = ManifestState()
            state.add_arrow(ledger.read())
            snapshot = state.snapshot(version, self.branch, newest.e_tag)
            with self._lock:
                self._remember(snapshot)
        return snapshot

    def _remember(self, snapshot: Snapshot) -> None:
        self._history[snapshot.manifest_version] = snapshot
        while len(self._history) > _HISTORY:
            self._history.popitem(last=False)

    def void(self, version: int) -> VoidRow | None:
        """The record of a version that was damaged when it was written, and replaced."""
        return self.with_state(lambda state, _: state.voids.get((self.branch, version)))

    def commits(self) -> list[CommitRow]:
        """Every commit that is visible here, inherited ones too, oldest first."""
        commits, version = self._commits(_IS_COMMIT)
        commits.sort(key=attrgetter("order"))
        with self._lock:
            if self._version == version:
                self._state.remember_newest(commits)
        return commits

    def commit(self, commit_id: str) -> CommitRow | None:
        """A commit by its id."""
        recent = self.with_state(lambda state, _: state.recent.get(commit_id))
        if recent is not None:
            return recent
        rows, _ = self._commits(has_text(KEY, commit_id) & _IS_COMMIT)
        return rows[0] if rows else None

    def remembers(self, commit_id: str) -> bool:
        """Whether a commit is one of the newest in memory, as last read; without waiting."""
        return commit_id in self._state.recent

    def completion(self, commit_id: str) -> CommitRow | None:
        """The commit of a recovery that finished another."""
        ending = self.with_state(lambda state, _: state.endings.get(commit_id))
        return ending if ending is not None and COMPLETES in ending.extra else None

    def has_row(self, object_id: str) -> bool:
        """Whether there is a row with this key."""
        return bool(self._newest().read([KEY], has_text(KEY, object_id)).num_rows)

    def _commits(self, condition: pc.Expression) -> tuple[list[CommitRow], int]:
        with self._detect_deletion():
            ledger = self._newest()
            rows = from_arrow(ledger.read(condition=condition))
        return [row for row in rows if isinstance(row, CommitRow)], ledger.version

    def _newest(self) -> LedgerReader:
        version = self.with_state(lambda _, version: version)
        return LedgerReader.open(self.datasets, self.ref, version)

    def _open_at(self, version: int) -> LedgerReader:
        newest = self.current().manifest_version
        if not 1 <= version <= newest:
            raise InputError(
                f"branch '{branch_label(self.branch)}' has no version {version}",
                hint=f"its newest version is {newest}",
            )
        try:
            ledger = LedgerReader.open(self.datasets, self.ref, version)
        except StorageMissing:
            raise HistoryGone(
                f"version {version} of branch '{branch_label(self.branch)}' was removed",
                hint="cleanup removed it, or it is older than the branch",
                details={"version": version},
            ) from None
        ledger.check_rows()
        check_stamp(ledger)
        return ledger

    # -- refreshing --------------------------------------------------------------------

    @contextmanager
    def _detect_deletion(self) -> Iterator[None]:
        """Report a missing file as a missing branch if the branch was deleted."""
        try:
            yield
        except StorageMissing:
            self._refuse_deleted()
            raise

    def _refuse_deleted(self) -> None:
        """Raise if the branch was deleted: that removes its reference first."""
        branch, objects = self.branch, self.datasets.objects
        if branch is not None and objects.head(branch_reference(branch)) is None:
            raise self._missing() from None

    def _refresh(self) -> None:
        life = None
        if self.branch is not None:
            # The reference is authoritative: a branch without one is deleted, whatever files
            # remain. Its tag differs from those of later branches of this name.
            reference = self.datasets.objects.head(branch_reference(self.branch))
            if reference is None:
                self._reader = None
                raise self._missing()
            life = reference.e_tag
        if self._reader is None or life != self._life:
            self._load(life)
            return
        self._follow()
        newest = self._probe_newest()
        if self._hides(newest, life):
            newest -= 1
        if newest == self._version:
            return
        self._reader.advance(newest)
        check_stamp(self._reader)
        fragments = self._reader.fragments
        state, read, head_address = self._state, self.fragments, self.head_address
        if not read <= fragments:
            # It was compacted, or a damaged version was withdrawn: added rows may be gone, or would
            # be counted twice.
            state, read, head_address = ManifestState(), frozenset(), None
        rows = self._reader.read(fragments=fragments - read, addresses=True)
        state.add_arrow(rows)
        if state is not self._state:
            state.remember_newest(self._state.remembered_in(rows))
        self._on_change()
        self._state = state
        self._take_over(newest, fragments, self._find_head(rows) or head_address)

    def _probe_newest(self) -> int:
        """The newest version, found by probing the name of the next one.

        Cleanup never removes a version younger than an age floor; see ``LISTS_AFTER``.
        """
        now = time.monotonic()
        try:
            if now - self._looked <= LISTS_AFTER:
                newest = self.datasets.newest(self.ref, self._version)
            else:
                newest = LedgerReader.open(self.datasets, self.ref).version
        except StorageMissing:
            raise self._missing() from None
        self._looked = now
        return newest

    def _load(self, life: str | None) -> None:
        """Read everything: on first use, and when the branch was deleted and created again."""
        now = time.monotonic()
        try:
            ledger = LedgerReader.open(self.datasets, self.ref)
            if self._hides(ledger.version, life):
                ledger = LedgerReader.open(self.datasets, self.ref, ledger.version - 1)
        except StorageMissing:
            raise self._missing() from None
        ledger.check_rows()
        check_stamp(ledger)
        state = ManifestState()
        rows = ledger.read(addresses=True)
        state.add_arrow(rows)
        identity = None
        if self.branch is not None:
            # The last step that can fail: after it the state is replaced as a whole.
            try:
                text = self.datasets.objects.read(branch_reference(self.branch))
            except StorageMissing:
                raise self._missing() from None
            # The reference contains a random number.
            identity = f"{fnv1a_64(text):016x}"
        self._reader, self._state, self._life = ledger, state, life
        self.cached_identity = identity
        self._history.clear()
        self._looked = now
        self._snapshot = self.writer = None  # of another life of the branch
        self._on_change()
        self._take_over(ledger.version, ledger.fragments, self._find_head(rows))

    def _find_head(self, rows: pa.Table) -> RowAddress | None:
        """The address of this branch's head, if it is among the rows."""
        number = pc.index(rows[KEY], head_id(self.branch)).as_py()
        if number < 0:
            return None
        return RowAddress.of(rows[ROW_ADDRESS][number].as_py())

    def _take_over(
        self, version: int, fragments: frozenset[int], head_address: RowAddress | None
    ) -> None:
        if self._snapshot is not None and version > self._version and fragments >= self.fragments:
            self._remember(self._snapshot)  # compared by whoever follows; none was withdrawn
        self._version, self.fragments, self.head_address = version, fragments, head_address
        self._snapshot = self._state.snapshot(version, self.branch, self._life)

    def _missing(self) -> BranchNotFound | GraphNotFound:
        if self.branch is not None:
            return missing_branch(self.branch)
        return GraphNotFound(
            f"there is no graph at '{self.datasets.root.uri}'",
            hint="create one with Graph.init; after an interrupted init, with force=True",
        )

    # -- announcements -----------------------------------------------------------------

    def hide(self, version: int) -> None:
        """Let the readers beside this process serve what they have while this one publishes."""
        if self.announcer is not None:
            self.announcer.hide(self._key(self._life), version)

    def reveal(self) -> None:
        """Hide nothing any more, whatever became of it."""
        if self.announcer is not None:
            self.announcer.reveal(self._key(self._life))

    def published(
        self,
        rows: Iterable[Row],
        version: int,
        fragments: frozenset[int],
        head_address: RowAddress | None = None,
    ) -> None:
        """Add the rows that this process just published, without reading them back."""
        with self._lock:
            if version != self._version + 1:
                return
            rows, head = list(rows), self._state.head
            self._add(rows, version, fragments, head_address)
            if self.announcer is not None:
                from omnigraph.commit.announcements import Announcement

                follows = None if head is None else head.commit_id
                news = Announcement(version, follows, sorted(fragments), to_records(rows))
                self.announcer.reveal(self._key(self._life), news)

    def _follow(self) -> None:
        """Add what the writer beside this process has announced since the last version."""
        if self.announced is None:
            return
        key = self._key(self._life)
        if self._follower is None or self._follower.key != key:
            self._follower = self.announced.follow(key)
        for news in self._follower.after(self._version):
            head = self._state.head
            if news.follows != (None if head is None else head.commit_id):
                return
            self._add(list(from_records(news.records)), news.version, frozenset(news.fragments))

    def _hides(self, version: int, life: str | None) -> bool:
        """Whether the writer beside this process is publishing a version at this moment."""
        return self.announced is not None and self.announced.follow(self._key(life)).hides(version)

    def _key(self, life: str | None) -> int:
        from omnigraph.commit.announcements import key_of

        return key_of(self.datasets.root.uri, self.branch, life)

    def _add(
        self,
        rows: Sequence[Row],
        version: int,
        fragments: frozenset[int],
        head_address: RowAddress | None = None,
    ) -> None:
        if any(isinstance(row, SchemaRow) for row in rows):
            self._on_change()
        self._state.add(rows)
        self._take_over(version, fragments, head_address)

    def forget_versions(self) -> None:
        """Drop cached versions, since some were removed; the next read lists the remaining ones."""
        with self._lock:
            self._history.clear()
            self._looked = -math.inf


def branch_reference(branch: str) -> str:
    """The reference file of a branch of the manifest."""
    return f"{MANIFEST}/{branch_file(branch)}"


def check_stamp(ledger: LedgerReader) -> None:
    """Refuse a graph of another format version."""
    text = ledger.stamp.get(FORMAT_KEY, "1")
    version = int(text) if text.isdecimal() else 0
    if version == FORMAT_VERSION:
        return
    details = {"found": text, "supported": FORMAT_VERSION}
    if version > FORMAT_VERSION:
        raise FormatRefused(
            f"this graph has format {text}, this program supports {FORMAT_VERSION}: "
            "upgrade omnigraph before opening this graph",
            hint="nothing was changed",
            details=details,
        )
    raise FormatRefused(
        f"this graph has format {text}, which is older than {FORMAT_VERSION}",
        hint="run `omnigraph export` with the release that wrote it, then init and load here",
        details=details,
    )


def list_branches(datasets: Datasets) -> list[str]:
    """``main`` first, then the others in alphabetical order; internal branches are hidden."""
    return [MAIN, *sorted(set(read_branches(datasets, MANIFEST)) - {SCHEMA_LOCK})]
