"""Runs a load from its sources to its commit, on an existing branch or one created for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.group import commit_grouped
from omnigraph.commit.lifecycle import recover
from omnigraph.commit.metadata import LOAD, LOAD_BRANCH
from omnigraph.commit.names import branch_label, check_new_branch, claim_lease, normal_branch
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import check_head
from omnigraph.commit.receipts import LoadReceipt, Receipt
from omnigraph.commit.rows import FINGERPRINT, CommitRow, WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.staging import delete_claim
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import (
    InputError,
    OmniGraphError,
    OutcomePending,
    StorageDenied,
    StorageError,
    StorageMissing,
)
from omnigraph.lang.schema.catalog import Catalog, EntityType, NodeType
from omnigraph.logs import logger
from omnigraph.write.delta import Deltas, Effect, RowSource, TableDelta
from omnigraph.write.grouping import MOST_ROWS, Member, MemberRows, TypeRows
from omnigraph.write.load.digest import FILES, Digest, FilesDigest
from omnigraph.write.load.direct import direct_writes
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.rejects import Rejects, file_and_line, open_rejects, violation_reject
from omnigraph.write.load.sources import Sources, read_data
from omnigraph.write.load.spool import Spools, temporary_files
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import InMemoryKeys, Keys, Validator, Violation

_EFFECTS = {
    LoadMode.MERGE: Effect.UPSERT,
    LoadMode.APPEND: Effect.APPEND,
    LoadMode.OVERWRITE: Effect.OVERWRITE,
}
_LOG = logger(__name__)


class SpooledRows(RowSource, Protocol):
    """The rows of one type, each of which is valid by itself."""

    @property
    def entity_type(self) -> EntityType:
        """The type of the rows."""

    def source_lines(self, rows: Sequence[int]) -> list[int]:
        """The source lines of rows."""

    def drop(self, rows: Sequence[int]) -> None:
        """Drop rows by their present positions; the others move up."""


class Fingerprint(Protocol):
    """Identifies the data of a load."""

    def text(self) -> str:
        """The fingerprint; equal for equal data."""


class LoadIntake(Protocol):
    """Counts and rejects of the records read by one or many processes."""

    @property
    def records(self) -> int:
        """The number of converted records."""

    @property
    def ignored(self) -> dict[str, int]:
        """Counts of properties that are not in the schema."""

    @property
    def rejects(self) -> Rejects:
        """The rejected records so far."""

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record has its own id."""

    @property
    def files(self) -> Sequence[str]:
        """The names of the files by their numbers."""


class Load:
    """Rows that were read, converted and checked one by one; valid while their reader is open."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        job: LoadJob,
        intake: LoadIntake,
        spools: Mapping[str, SpooledRows],
        digest: Fingerprint | None = None,
        keys: Keys | None = None,
    ) -> None:
        """``digest`` is given for a load with an idempotency key."""
        self._job = job
        self._keys = keys or InMemoryKeys()
        self._store = store
        self._catalog = catalog
        self._intake = intake
        self._digest = digest
        self.touches = frozenset(spools)
        self.schema_hash = catalog.schema_hash
        self.is_strict = job.mode is LoadMode.OVERWRITE
        self._looked_up: dict[str, tuple[tuple[Pin, int], bool]] = {}
        self._spools = spools
        if job.mode is LoadMode.MERGE:
            # Keyed nodes must not repeat an id, and generated ids never do.
            # For other rows with the same id the last one wins.
            for key in sorted(intake.given_ids):
                dropped = self._keys.superseded(spools[key])
                if len(dropped):
                    spools[key].drop(dropped)

    @property
    def fingerprint(self) -> str | None:
        """Distinguishes this load from another with the same idempotency key."""
        if self._digest is None:
            return None
        digest = f"load:{self._job.mode}:{self._intake.records}:{self._digest.text()}"
        security = self._job.security
        return digest if security is None else security.own_fingerprint(digest)

    def counts(self) -> dict[str, Any]:
        """The fields of the receipt that do not come from the commit."""
        return {
            "records": self._intake.records,
            "ignored": dict(sorted(self._intake.ignored.items())),
            "rejected": self._intake.rejects.count,
        }

    def rows(self) -> dict[str, int]:
        """The number of rows to write by table key."""
        return {key: spool.num_rows for key, spool in self._spools.items()}

    def prepare(self, view: WriteView, extra: Mapping[str, Any]) -> PreparedWrite:
        """Check and stage; ``extra`` is kept in the commit of a load with an idempotency key."""
        consulted = self.check(view.snapshot)
        deltas = self._deltas(view.snapshot)
        validator = self._validator(deltas)
        # Not earlier: the check above may have added rejects.
        kept = self._kept(extra)
        self._report("writing")
        staged = stage_deltas(view, deltas)
        return PreparedWrite(staged, consulted, validator.check, met=self.rows(), extra=kept)

    def member(self, extra: Mapping[str, Any]) -> Member | None:
        """The load as a member of a group; none if it has many rows, or none.

        A load that may reject records, or reports its progress, is committed by its own thread.
        """
        is_small = 0 < sum(self.rows().values()) <= MOST_ROWS
        is_local = isinstance(self._keys, InMemoryKeys)
        is_local &= not any(spool.is_large for spool in self._spools.values())
        reports = self._intake.rejects.has_room or self._job.on_progress is not None
        if not is_small or not is_local or reports or self.is_strict:
            return None
        make = partial(self._content, extra)
        return Member(self._store, self._catalog, make, self._job.security)

    def _content(self, extra: Mapping[str, Any]) -> MemberRows:
        is_strict = self._job.mode is LoadMode.APPEND
        tables = {
            key: TypeRows(
                spool.entity_type,
                spool.select(spool.names),
                is_strict,
                self._has_made_ids(spool.entity_type),
            )
            for key, spool in self._spools.items()
        }
        return MemberRows(tables, self.rows(), self._kept(extra))

    def _kept(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a load with an idempotency key."""
        return {} if self._digest is None else {LOAD: self.counts(), **extra}

    def check(self, snapshot: Snapshot) -> dict[str, int]:
        """Validate all rows together; violations are rejected until there are none.

        Rejecting a row may invalidate others, such as its edges, so all are checked again.
        """
        self._report("checking")
        while True:
            limit = None if self._intake.rejects.has_room else 1
            deltas = self._deltas(snapshot)
            judged = self._validator(deltas).judge(snapshot, limit)
            if not judged.violations:
                self._refuse_emptying()
                return judged.consulted
            self._reject(judged.violations)

    def _validator(self, deltas: Deltas) -> Validator:
        security = self._job.security
        return Validator(self._store, self._catalog, deltas, self._keys, security=security)

    def _refuse_emptying(self) -> None:
        """Refuse an overwrite that would only delete, because all records were rejected."""
        rejected = self._intake.rejects.count
        if self._job.mode is not LoadMode.OVERWRITE or not rejected:
            return
        for spool in self._spools.values():
            if not spool.num_rows:
                raise InputError(
                    f"every record of {spool.entity_type.name} was set aside, "
                    "so the overwrite would only empty its table",
                    hint="fix the records, or delete the rows with a mutation",
                    details={"table_key": spool.entity_type.table_key, "rejected": rejected},
                )

    def _reject(self, violations: tuple[Violation, ...]) -> None:
        rows: dict[str, dict[int, Violation]] = {}
        for violation in violations:
            if violation.row is None:
                raise violation.error()
            rows.setdefault(violation.table_key, {}).setdefault(violation.row, violation)
        for key, by_row in rows.items():
            spool = self._spools[key]
            numbers = spool.source_lines(sorted(by_row))
            for row, number in zip(sorted(by_row), numbers, strict=True):
                file, line = file_and_line(number)
                reject = violation_reject(self._intake.files[file], line, by_row[row])
                self._intake.rejects.add(reject)
            spool.drop(list(by_row))

    def _report(self, phase: str) -> None:
        self._job.report(phase, self._intake.records, self._intake.rejects.count)

    def _deltas(self, snapshot: Snapshot) -> dict[str, TableDelta]:
        effect = _EFFECTS[self._job.mode]
        deltas = {}
        for key, spool in self._spools.items():
            pin = snapshot.pin(key)
            empty = pin is None or not pin.row_count
            entity_type = spool.entity_type
            made = self._has_made_ids(entity_type)
            new = empty or made
            if effect is Effect.UPSERT and pin is not None and not new:
                new = not self._meets(pin, spool)
            # Rows with new ids are appended, which is much cheaper.
            cheap = effect is Effect.UPSERT and new
            effect_here = Effect.APPEND if cheap else effect
            deltas[key] = TableDelta(entity_type, effect_here, spool, new_ids=new, made_ids=made)
        return deltas

    def _has_made_ids(self, entity_type: EntityType) -> bool:
        is_keyed = isinstance(entity_type, NodeType) and bool(entity_type.key)
        return not is_keyed and entity_type.table_key not in self._intake.given_ids

    def _meets(self, pin: Pin, spool: SpooledRows) -> bool:
        """Whether some row has an existing id; results are cached."""
        seen = (pin, spool.num_rows)
        if self._looked_up.get(pin.table_key, (None, False))[0] != seen:
            met = self._keys.meets(self._store.table(pin), spool)
            self._looked_up[pin.table_key] = (seen, met)
        return self._looked_up[pin.table_key][1]


class LoadReader(Protocol):
    """Reads the data of a load; ``base`` is the state that it will be committed on."""

    def __call__(
        self,
        store: GraphStore,
        catalog: Catalog,
        job: LoadJob,
        destination: LoadDestination,
        base: Snapshot,
    ) -> AbstractContextManager[Load]: ...


@contextmanager
def read_locally(
    store: GraphStore, catalog: Catalog, job: LoadJob, destination: LoadDestination, base: Snapshot
) -> Iterator[Load]:
    """Read everything in this process; spooled and unstaged rows are deleted at the end."""
    with (
        _spool_folder() as folder,
        open_rejects(job.rejects, job.data) as rejects_file,
        direct_writes(store, base, job, destination) as direct,
    ):
        spools = Spools(Path(folder), direct)
        intake = Intake(
            catalog,
            spools.open,
            Rejects(job.max_rejects, None if rejects_file is None else rejects_file.keep),
            strict_properties=job.strict_properties,
            allow_local_files=job.allow_local_files,
        )
        if destination.idempotency_key is not None:
            intake.digest = Digest()
        if job.on_progress is not None:
            intake.progress = lambda: job.report("reading", intake.records, intake.rejects.count)
        read_data(
            job.data,
            intake,
            Sources(catalog, job.format, job.types, rejects_file, local_files=job.local_files),
        )
        digest: Fingerprint | None = intake.digest
        if first_was_by_files(store, destination, base.branch):
            digest = FilesDigest(intake.files)
        yield Load(store, catalog, job, intake, spools.close(), digest)


def first_commit(
    store: GraphStore, destination: LoadDestination, branch: str | None
) -> CommitRow | None:
    """The commit of an earlier load with the same idempotency key."""
    if destination.idempotency_key is None:
        return None
    scoped = (branch, destination.idempotency_key)
    return store.manifest(branch).with_state(lambda state, _: state.repeats.get(scoped))


def first_was_by_files(
    store: GraphStore, destination: LoadDestination, branch: str | None
) -> bool | None:
    """Whether the first load with an idempotency key has a digest of its files, not of values.

    ``None`` if there was none.
    """
    first = first_commit(store, destination, branch)
    fingerprint = None if first is None else first.extra.get(FINGERPRINT)
    return None if fingerprint is None else f":{FILES}" in fingerprint


@contextmanager
def _spool_folder() -> Iterator[str]:
    try:
        with temporary_files():
            folder = tempfile.TemporaryDirectory(
                prefix="omnigraph-load-", ignore_cleanup_errors=True
            )
    except (StorageDenied, StorageMissing):
        raise InputError(
            "the temporary directory is not writable", hint="set TMPDIR to another directory"
        ) from None
    with folder as path:
        yield path


def load_into(
    store: GraphStore,
    catalog: Catalog,
    job: LoadJob,
    destination: LoadDestination,
    reader: LoadReader = read_locally,
) -> LoadReceipt:
    """Read, validate and commit. A refused load leaves no trace, not even its branch."""
    origin = branch = normal_branch(destination.branch)
    is_new = False
    if destination.from_branch is not None:
        # An earlier load that died may have left the branch, on a base that has moved on.
        recover(store, full=False)
        is_new = branch_label(branch) not in Branches(store).list()
    if is_new:
        if destination.before_fork is not None:
            destination.before_fork()
        Branches(store).check_new(destination.branch)
        origin = normal_branch(destination.from_branch)
    # A missing branch is an error before anything is read.
    base = store.manifest(origin).current()
    receipt: LoadReceipt | None = None
    try:
        with reader(store, catalog, job, destination, base) as load:
            receipt = _commit(store, load, origin, destination, is_new=is_new)
    except (OmniGraphError, OSError) as error:
        # Closing the sources fails after the commit, which it does not undo.
        if receipt is None or receipt.commit_id is None:
            raise
        _LOG.warning(
            "commit %s is loaded, but its input was not closed: %s", receipt.commit_id, error
        )
    return receipt


def _commit(
    store: GraphStore, load: Load, origin: str | None, destination: LoadDestination, *, is_new: bool
) -> LoadReceipt:
    branch = normal_branch(destination.branch)
    if is_new or destination.dry_run:
        base = store.manifest(origin).current()
        check_head(base.head, destination.if_commit)
        load.check(base)
    creates = is_new and not destination.dry_run and any(load.rows().values())
    created = {"base_branch": destination.from_branch, "branch_created": creates}
    if destination.dry_run or (is_new and not creates):
        label = branch_label(branch)
        receipt = Receipt(None, base.manifest_version, label, {}, destination.actor, load.rows())
    elif creates:
        with _new_branch(store, destination) as made:
            receipt = commit_write(store, _request(load, made, destination, created))
    else:
        request = _request(load, branch, destination, created)
        if destination.if_commit is None:
            request = replace(request, member=load.member({LOAD_BRANCH: created}))
        receipt = commit_grouped(store, request)
    counts = {**load.counts(), **created}
    if receipt.commit_id is not None:
        # A repeat gets the counts of the first call; the commit stands if they cannot be read.
        with suppress(StorageError):
            first = first_commit(store, destination, branch)
            if first is not None:
                counts |= {**first.extra.get(LOAD, {}), **first.extra.get(LOAD_BRANCH, {})}
    return LoadReceipt(
        receipt.commit_id,
        receipt.version,
        receipt.branch,
        receipt.tables,
        receipt.actor,
        receipt.met,
        **counts,
        dry_run=destination.dry_run,
    )


@contextmanager
def _new_branch(store: GraphStore, destination: LoadDestination) -> Iterator[str | None]:
    """A branch for one write; it is removed when the write fails and nothing is on it.

    A load that dies leaves its claim on the branch, and the next writer removes both.
    """
    branches, branch = Branches(store), check_new_branch(destination.branch)
    with store.leases.acquire([claim_lease(branch)], store.timeouts.lease):
        try:
            claim = branches.create_for_load(branch, destination.from_branch)
            yield branch
        except OutcomePending:
            raise
        except BaseException:
            # A failure here must not hide the error that stopped the load.
            with suppress(OmniGraphError):
                branches.remove_abandoned(branch)
            raise
        reached(Failpoint.BRANCH_BEFORE_UNCLAIM)
        # The load is committed, so a leftover claim does no harm.
        with suppress(OmniGraphError):
            delete_claim(store, claim)


def _request(
    load: Load, branch: str | None, destination: LoadDestination, created: Mapping[str, Any]
) -> WriteRequest:
    return WriteRequest(
        WriterKind.LOAD,
        branch,
        load.touches,
        partial(load.prepare, extra={LOAD_BRANCH: created}),
        load.is_strict,
        destination.actor,
        if_commit=destination.if_commit,
        idempotency_key=destination.idempotency_key,
        fingerprint=load.fingerprint,
        schema_hash=load.schema_hash,
    )
