"""One load from its sources to deltas that can be committed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from omnigraph.commit.metadata import LOAD
from omnigraph.commit.rows import FINGERPRINT, CommitRow
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteView
from omnigraph.errors import InputError, StorageDenied, StorageMissing
from omnigraph.lang.schema.catalog import Catalog, NodeType
from omnigraph.write.delta import Effect, Kind, RowSource, TableDelta
from omnigraph.write.load.digest import FILES, Digest, FilesDigest
from omnigraph.write.load.files import Sources
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.rejects import Rejects
from omnigraph.write.load.rejects_file import open_rejects
from omnigraph.write.load.sources import read_data
from omnigraph.write.load.spool import Spools, temporary_files
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import InMemoryKeys, Keys, Validator, Violation

_EFFECTS = {
    LoadMode.MERGE: Effect.UPSERT,
    LoadMode.APPEND: Effect.APPEND,
    LoadMode.OVERWRITE: Effect.OVERWRITE,
}


class SpooledRows(RowSource, Protocol):
    """The rows of one type, each of which is valid by itself."""

    @property
    def kind(self) -> Kind:
        """The type of the rows."""

    def source_lines(self, rows: Sequence[int]) -> list[int]:
        """The source lines of rows."""

    def drop(self, rows: Sequence[int]) -> None:
        """Drop rows by their present positions; the others move up."""


class Fingerprint(Protocol):
    """Identifies the data of a load."""

    def text(self) -> str:
        """The same for the same data."""


class LoadIntake(Protocol):
    """Counts and rejects of what was read, by one process or many."""

    @property
    def records(self) -> int:
        """How many records were converted."""

    @property
    def ignored(self) -> dict[str, int]:
        """Counts of properties that are not in the schema."""

    @property
    def rejects(self) -> Rejects:
        """The rejected records so far."""

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record has its own id."""

    def refuse(self, violation: Violation, source_line: int) -> None:
        """Reject a valid record that breaks a rule about sets of rows."""


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
            # Of other rows with the same id the last one wins.
            for key in sorted(intake.given_ids):
                dropped = self._keys.superseded(spools[key])
                if len(dropped):
                    spools[key].drop(dropped)

    @property
    def fingerprint(self) -> str | None:
        """Distinguishes this load from another with the same idempotency key."""
        if self._digest is None:
            return None
        return f"load:{self._job.mode}:{self._intake.records}:{self._digest.text()}"

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
        validator = Validator(self._store, self._catalog, deltas, self._keys)
        # Not earlier: the check above may have rejected more records.
        kept = {} if self._digest is None else {LOAD: self.counts(), **extra}
        self._report("writing")
        staged = stage_deltas(view, deltas)
        return PreparedWrite(staged, consulted, validator.check, met=self.rows(), extra=kept)

    def check(self, snapshot: Snapshot) -> dict[str, int]:
        """Validate all rows together; violations are rejected until there are none.

        Rejecting a row may invalidate others, such as its edges, so all are checked again.
        """
        self._report("checking")
        while True:
            limit = None if self._intake.rejects.has_room else 1
            deltas = self._deltas(snapshot)
            validator = Validator(self._store, self._catalog, deltas, self._keys)
            judged = validator.judge(snapshot, limit)
            if not judged.violations:
                self._refuse_emptying()
                return judged.consulted
            self._reject(judged.violations)

    def _refuse_emptying(self) -> None:
        """Refuse an overwrite that would only delete, as all of its records are rejected."""
        rejected = self._intake.rejects.count
        if self._job.mode is not LoadMode.OVERWRITE or not rejected:
            return
        for spool in self._spools.values():
            if not spool.num_rows:
                raise InputError(
                    f"every record of {spool.kind.name} was set aside, "
                    "so the overwrite would only empty its table",
                    hint="mend the records, or delete the rows by a mutation",
                    details={"table_key": spool.kind.table_key, "rejected": rejected},
                )

    def _reject(self, violations: tuple[Violation, ...]) -> None:
        rows: dict[str, dict[int, Violation]] = {}
        for violation in violations:
            if violation.row is None:
                raise violation.error()
            rows.setdefault(violation.table_key, {}).setdefault(violation.row, violation)
        for key, by_row in rows.items():
            spool = self._spools[key]
            lines = spool.source_lines(sorted(by_row))
            for row, line in zip(sorted(by_row), lines, strict=True):
                self._intake.refuse(by_row[row], line)
            spool.drop(list(by_row))

    def _report(self, phase: str) -> None:
        self._job.report(phase, self._intake.records, self._intake.rejects.count)

    def _deltas(self, snapshot: Snapshot) -> dict[str, TableDelta]:
        effect = _EFFECTS[self._job.mode]
        deltas = {}
        for key, spool in self._spools.items():
            pin = snapshot.pin(key)
            empty = pin is None or not pin.row_count
            kind = spool.kind
            keyed = isinstance(kind, NodeType) and bool(kind.key)
            made = not keyed and key not in self._intake.given_ids
            new = empty or made
            if effect is Effect.UPSERT and pin is not None and not new:
                new = not self._meets(pin, spool)
            # Rows with new ids are appended, which is much cheaper.
            cheap = effect is Effect.UPSERT and new
            effect_here = Effect.APPEND if cheap else effect
            deltas[key] = TableDelta(kind, effect_here, spool, new_ids=new, made_ids=made)
        return deltas

    def _meets(self, pin: Pin, spool: SpooledRows) -> bool:
        """Whether some row has an existing id; the same rows are not looked up twice."""
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
    store: GraphStore,
    catalog: Catalog,
    job: LoadJob,
    destination: LoadDestination,
    base: Snapshot,
) -> Iterator[Load]:
    """Read everything in this process; the spooled rows are deleted at the end of the block."""
    with _spool_folder() as folder, open_rejects(job.rejects, job.data) as rejects_file:
        spools = Spools(Path(folder))
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
        read_data(job.data, intake, Sources(catalog, job.format, job.types, rejects_file))
        digest: Fingerprint | None = intake.digest
        if is_by_files(first_fingerprint(store, destination, base.branch)):
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


def first_fingerprint(
    store: GraphStore, destination: LoadDestination, branch: str | None
) -> str | None:
    """The fingerprint of an earlier load with the same idempotency key."""
    first = first_commit(store, destination, branch)
    return None if first is None else first.extra.get(FINGERPRINT)


def is_by_files(fingerprint: str | None) -> bool:
    """Whether a load was identified by the bytes of its files, not by its values."""
    return fingerprint is not None and f":{FILES}" in fingerprint


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
