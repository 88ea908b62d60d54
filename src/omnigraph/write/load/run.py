"""One load from its sources to deltas that can be committed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from omnigraph.commit.metadata import LOAD
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteView
from omnigraph.errors import InputError, StorageDenied, StorageMissing
from omnigraph.lang.schema.catalog import Catalog, NodeType
from omnigraph.write.delta import Effect, Kind, RowSource, TableDelta
from omnigraph.write.load.digest import FILES, Digest, FilesDigest
from omnigraph.write.load.files import SourceOptions
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.rejects import Rejects
from omnigraph.write.load.rejects_file import kept_in
from omnigraph.write.load.sources import LoadData, read_data
from omnigraph.write.load.spool import Spools, temporary_files
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import HeldKeys, Keys, Validator, Violation

Progress = Callable[["LoadProgress"], None]


class LoadMode(StrEnum):
    """How loaded rows meet those that are there."""

    MERGE = "merge"
    APPEND = "append"
    OVERWRITE = "overwrite"


_EFFECTS = {
    LoadMode.MERGE: Effect.UPSERT,
    LoadMode.APPEND: Effect.APPEND,
    LoadMode.OVERWRITE: Effect.OVERWRITE,
}


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load is; for bars. Phases are ``reading``, ``checking`` and ``writing``.

    Where many processes work, ``done`` of ``total`` shares are, and further phases say at what.
    """

    phase: str
    records: int
    rejected: int
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Everything that a caller may say about a load, beside data and mode."""

    form: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    rejects: str | PathLike[str] | None = None
    max_rejects: int = 0
    strict_properties: bool = False
    progress: Progress | None = None
    allow_local_files: bool = False
    """Whether a Blob may name a file of this machine, whose content is stored."""
    is_keyed: bool = False
    """Whether an idempotency key stands for the data, so that a digest of it is needed."""


class WaitingRows(RowSource, Protocol):
    """The rows of one type, each of which is good by itself."""

    @property
    def kind(self) -> Kind:
        """The type of the rows."""

    def places(self, rows: Sequence[int]) -> list[int]:
        """Where rows came from."""

    def drop(self, rows: Sequence[int]) -> None:
        """Forget rows by their present positions; the others move up."""


class Known(Protocol):
    """What tells the data of a load from that of others."""

    def text(self) -> str:
        """The same for the same data."""


class Read(Protocol):
    """What was read, whoever read it."""

    @property
    def records(self) -> int:
        """How many records were converted."""

    @property
    def ignored(self) -> dict[str, int]:
        """How often a property came that the schema does not have."""

    @property
    def rejects(self) -> Rejects:
        """What was refused so far."""

    @property
    def digest(self) -> Known | None:
        """What the data is known by, where somebody asked."""

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record brought its own id."""

    def refuse(self, violation: Violation, where: int) -> None:
        """A record that was good by itself, and breaks a rule among the others."""


class Load:
    """Data that was read, converted and checked by itself; used inside ``reading``."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        mode: LoadMode,
        intake: Read,
        spools: Mapping[str, WaitingRows],
        progress: Progress | None = None,
        digest: Known | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._progress = progress
        self._keys = keys or HeldKeys()
        self._digest = digest or intake.digest
        self._store = store
        self._catalog = catalog
        self._intake = intake
        self.mode = mode
        self._looked_up: dict[str, tuple[tuple[Pin, int], bool]] = {}
        self._spools = spools
        if mode is LoadMode.MERGE:
            # Keyed nodes must not repeat an id at all, and ids of our own never do.
            # Of others that name one id the last counts.
            for key in sorted(intake.given_ids):
                dropped = self._keys.superseded(spools[key])
                if len(dropped):
                    spools[key].drop(dropped)

    @property
    def touches(self) -> frozenset[str]:
        return frozenset(self._spools)

    @property
    def schema_hash(self) -> str:
        return self._catalog.schema_hash

    @property
    def is_strict(self) -> bool:
        return self.mode is LoadMode.OVERWRITE

    @property
    def records(self) -> int:
        return self._intake.records

    @property
    def ignored(self) -> dict[str, int]:
        return dict(sorted(self._intake.ignored.items()))

    @property
    def rejected(self) -> int:
        return self._intake.rejects.count

    @property
    def fingerprint(self) -> str | None:
        """What tells this load from another under the same key."""
        digest = self._digest
        return None if digest is None else f"load:{self.mode}:{self.records}:{digest.text()}"

    def report(self) -> dict[str, Any]:
        """What the load has to say beside its commit."""
        return {"records": self.records, "ignored": self.ignored, "rejected": self.rejected}

    def rows(self) -> dict[str, int]:
        """How many rows of each table are to be written."""
        return {key: spool.num_rows for key, spool in self._spools.items()}

    def prepare(self, view: WriteView) -> PreparedWrite:
        consulted = self.check(view.snapshot)
        deltas = self._deltas(view.snapshot)
        validator = Validator(self._store, self._catalog, deltas, self._keys)
        # Here and not before: of what is set aside the last is known only now.
        extra = {} if self._digest is None else {LOAD: self.report()}
        self._tell("writing")
        staged = stage_deltas(view, deltas)
        return PreparedWrite(staged, consulted, validator.check, met=self.rows(), extra=extra)

    def check(self, snapshot: Snapshot) -> dict[str, int]:
        """Judge all rows together; what breaks a rule is refused or set aside, until none does.

        A row that is set aside may leave others without what they need, so all are judged again.
        """
        self._tell("checking")
        while True:
            limit = None if self._intake.rejects.goes_on else 1
            deltas = self._deltas(snapshot)
            validator = Validator(self._store, self._catalog, deltas, self._keys)
            judged = validator.judge(snapshot, limit)
            if not judged.violations:
                self._refuse_emptying()
                return judged.consulted
            self._set_aside(judged.violations)

    def _refuse_emptying(self) -> None:
        """An overwrite all of whose records are bad would only delete."""
        if self.mode is not LoadMode.OVERWRITE or not self.rejected:
            return
        for spool in self._spools.values():
            if not spool.num_rows:
                raise InputError(
                    f"every record of {spool.kind.name} was set aside, "
                    "so the overwrite would only empty its table",
                    hint="mend the records, or delete the rows by a mutation",
                    details={"table_key": spool.kind.table_key, "rejected": self.rejected},
                )

    def _set_aside(self, violations: tuple[Violation, ...]) -> None:
        rows: dict[str, dict[int, Violation]] = {}
        for violation in violations:
            if violation.row is None:
                raise violation.error()
            rows.setdefault(violation.table_key, {}).setdefault(violation.row, violation)
        for key, found in rows.items():
            spool = self._spools[key]
            for row, place in zip(sorted(found), spool.places(sorted(found)), strict=True):
                self._intake.refuse(found[row], place)
            spool.drop(list(found))

    def _tell(self, phase: str) -> None:
        if self._progress is not None:
            self._progress(LoadProgress(phase, self.records, self.rejected))

    def _deltas(self, snapshot: Snapshot) -> dict[str, TableDelta]:
        effect = _EFFECTS[self.mode]
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
            # Rows that meet no older one are appended, which is much cheaper.
            cheap = effect is Effect.UPSERT and new
            effect_here = Effect.APPEND if cheap else effect
            deltas[key] = TableDelta(kind, effect_here, spool, new_ids=new, made_ids=made)
        return deltas

    def _meets(self, pin: Pin, spool: WaitingRows) -> bool:
        """Whether some row has an id that is there; the same rows are not looked up twice."""
        seen = (pin, spool.num_rows)
        if self._looked_up.get(pin.table_key, (None, False))[0] != seen:
            met = self._keys.meets(self._store.table(pin), spool)
            self._looked_up[pin.table_key] = (seen, met)
        return self._looked_up[pin.table_key][1]


@dataclass(frozen=True, slots=True)
class Goal:
    """Where the rows of a load will be: on a branch that is there, or made from another."""

    branch: str | None
    base: str | None
    known_as: str | None = None
    """What an earlier load under the same idempotency key was known by."""

    @property
    def is_known_by_files(self) -> bool:
        return self.known_as is not None and f":{FILES}" in self.known_as


class Reader(Protocol):
    """Whoever reads the data of a load."""

    def __call__(
        self,
        store: GraphStore,
        catalog: Catalog,
        data: LoadData,
        mode: LoadMode,
        options: LoadOptions,
        goal: Goal,
    ) -> AbstractContextManager[Load]: ...


@contextmanager
def reading(
    store: GraphStore,
    catalog: Catalog,
    data: LoadData,
    mode: LoadMode,
    options: LoadOptions,
    goal: Goal,
) -> Iterator[Load]:
    """Read everything; the rows live until the end of the block."""
    progress = options.progress
    with _spool_folder() as folder, kept_in(options.rejects, data) as kept:
        sources = SourceOptions(options.form, options.types, kept)
        rejects = Rejects(options.max_rejects, None if kept is None else kept.keep)
        spools = Spools(Path(folder))
        intake = Intake(
            catalog,
            spools.open,
            rejects,
            strict_properties=options.strict_properties,
            allow_local_files=options.allow_local_files,
        )
        if options.is_keyed:
            intake.digest = Digest()
        if progress is not None:
            intake.progress = _reporter(progress)
        read_data(data, intake, sources)
        known = FilesDigest(intake.files) if goal.is_known_by_files else None
        yield Load(store, catalog, mode, intake, spools.close(), progress, known)


@contextmanager
def _spool_folder() -> Iterator[str]:
    try:
        with temporary_files():
            folder = tempfile.TemporaryDirectory(
                prefix="omnigraph-load-", ignore_cleanup_errors=True
            )
    except (StorageDenied, StorageMissing):
        raise InputError(
            "the temporary directory cannot be written", hint="set TMPDIR to another place"
        ) from None
    with folder as path:
        yield path


def _reporter(progress: Progress) -> Callable[[Intake], None]:
    return lambda intake: progress(LoadProgress("reading", intake.records, intake.rejects.count))


def load_mode(mode: Any) -> LoadMode:
    """A mode by its name."""
    try:
        return LoadMode(mode)
    except ValueError:
        known = ", ".join(LoadMode)
        raise InputError(f"'{mode}' is no load mode", hint=f"use one of {known}") from None
