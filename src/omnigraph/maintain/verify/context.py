"""The context of a verify: a store without caches, the existing files, the branches.

Caches of open handles would hide the state of the disk, so everything is opened again. A failed
check is a problem itself and does not stop other checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import contract_at
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.maintain.verify.report import ProblemCode, ProblemCollector, VerifyProblem, Weight
from omnigraph.records import dataclass
from omnigraph.storage.objects.local import ObjectInfo
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.verification import files_of_version

FROM_BACKUP = "restore the graph from a backup"


@dataclass(slots=True)
class VerifyContext:
    """The state shared by all checks."""

    store: GraphStore
    problems: ProblemCollector
    contract: Contract | None = None
    snapshots: dict[str | None, Snapshot] = field(default_factory=dict)
    """The newest state of every readable branch."""
    selected: list[str | None] = field(default_factory=list)
    """The branches to verify."""
    files: Mapping[str, ObjectInfo] = field(default_factory=dict)
    """Every file of tables and manifest, relative to the root."""
    damaged: set[str] = field(default_factory=set)
    """Damaged files. Reading one may crash the process."""
    reverted: set[str | None] = field(default_factory=set)
    """Branches whose newest state is lost: their tables are ahead, which is not drift."""
    _intact: dict[tuple[TableRef, int], bool] = field(default_factory=dict)

    def add(
        self,
        code: ProblemCode,
        message: str,
        hint: str | None = None,
        weight: Weight = Weight.ERROR,
        *,
        table: str | None = None,
        branch: str | None = None,
        file: str | None = None,
    ) -> None:
        self.problems.add(VerifyProblem(code, message, hint, weight, table, branch, file))

    def is_intact(self, ref: TableRef, version: int) -> bool:
        """Whether no file of a version is known to be damaged."""
        if (ref, version) not in self._intact:
            inside = [path for path in self.damaged if path.startswith(f"{ref.location}/")]
            intact = ref.version_path(version) not in inside
            if inside and intact:
                # A branch uses files of its origin; file names are unique.
                names = files_of_version(self.store.tables.open(ref, version))
                intact = not any(path.endswith(f"/{name}") for path in inside for name in names)
            self._intact[ref, version] = intact
        return self._intact[ref, version]

    def table_at(self, path: str) -> str | None:
        """The key of the table that a file belongs to."""
        location = "/".join(path.split("/")[:2])
        if path.startswith(f"{MANIFEST}/"):
            return MANIFEST
        for snapshot in self.snapshots.values():
            for key, pin in snapshot.pins.items():
                if pin.location == location:
                    return key
        return None

    def catalog(self, snapshot: Snapshot) -> Catalog | None:
        """The schema of a state, even if the schema files are damaged."""
        if self.contract is not None:
            return contract_at(self.store, self.contract, snapshot).catalog
        return None if snapshot.schema is None else compile_schema(snapshot.schema.source)

    def selected_snapshots(self) -> list[Snapshot]:
        """The readable states of the selected branches."""
        return [s for branch, s in self.snapshots.items() if branch in self.selected]

    def pins(self, *, of_all: bool = False) -> Iterator[tuple[Snapshot, Pin]]:
        """The tables of the selected branches, or of all."""
        for snapshot in self.snapshots.values() if of_all else self.selected_snapshots():
            for pin in snapshot.pins.values():
                yield snapshot, pin

    @contextmanager
    def guarded(
        self,
        what: str,
        *,
        code: ProblemCode = ProblemCode.CHECK_FAILED,
        hint: str | None = None,
        table: str | None = None,
        branch: str | None = None,
        file: str | None = None,
    ) -> Iterator[None]:
        """A check whose failure is a problem, with ``code`` if its data is damaged or missing."""
        try:
            yield
        except OmniGraphError as error:
            # Damage names the file itself.
            is_damage = isinstance(error, StorageCorrupt | StorageMissing)
            message = error.message if is_damage else f"{what}: {error.message}"
            self.add(code, message, hint or error.hint, table=table, branch=branch, file=file)
        except Exception as error:
            message = f"{what}: the check failed ({type(error).__name__})"
            hint = "repeat it; if it fails again, this is a bug in OmniGraph"
            failed = ProblemCode.CHECK_FAILED
            self.add(failed, message, hint, table=table, branch=branch, file=file)
