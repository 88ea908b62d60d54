"""What a verify stands on: a store with nothing kept warm, the files that are there, the branches.

Nothing that an open handle remembers may answer for what lies on the disk, so everything is opened
anew. A check that fails is a finding and stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import schema_at
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.maintain.verify.report import ProblemCode, ProblemCollector, VerifyProblem
from omnigraph.storage.objects.types import ObjectInfo
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.verification import files_of_version

Tell = Callable[[str, int, int], None]
"""Called with the phase, how many shares of it are done, and how many there are."""

FROM_BACKUP = "restore the graph from a backup"


@dataclass(slots=True)
class Ground:
    """What all checks share."""

    store: GraphStore
    problems: ProblemCollector
    contract: Contract | None = None
    snapshots: dict[str | None, Snapshot] = field(default_factory=dict)
    """The newest state of every branch that can be read."""
    selected: list[str | None] = field(default_factory=list)
    """The branches that are asked for."""
    files: Mapping[str, ObjectInfo] = field(default_factory=dict)
    """Every file of tables and manifest, relative to the root."""
    damaged: set[str] = field(default_factory=set)
    """Files that are not what was written. Lance may end the process when it reads one."""
    reverted: set[str | None] = field(default_factory=set)
    """Branches whose newest state is lost: what their tables have beyond it is no drift."""
    _whole: dict[tuple[TableRef, int], bool] = field(default_factory=dict)

    def is_whole(self, ref: TableRef, version: int) -> bool:
        """Whether a version can be read without meeting a file that is known to be damaged."""
        found = self._whole.get((ref, version))
        if found is None:
            found = self._whole[ref, version] = self._is_whole(ref, version)
        return found

    def _is_whole(self, ref: TableRef, version: int) -> bool:
        inside = [path for path in self.damaged if path.startswith(f"{ref.location}/")]
        if not inside:
            return True
        if self.store.datasets.version_path(ref, version) in inside:
            return False
        # A branch has files where it was made from; names are given only once.
        names = files_of_version(self.store.tables.open(ref, version))
        return not any(path.endswith(f"/{name}") for path in inside for name in names)

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
        """The schema of a state, also where the schema files are damaged."""
        if self.contract is not None:
            return schema_at(self.store, self.contract, snapshot)
        return None if snapshot.schema is None else compile_schema(snapshot.schema.source)

    def chosen(self) -> list[Snapshot]:
        """The states of the branches that are asked for, as far as they can be read."""
        return [s for branch, s in self.snapshots.items() if branch in self.selected]

    def pins(self, *, of_all: bool = False) -> Iterator[tuple[Snapshot, Pin]]:
        """The tables of the branches that are asked for, or of all."""
        for snapshot in self.snapshots.values() if of_all else self.chosen():
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
        """A check whose failure is a finding: ``code`` when what it reads is damaged or gone."""
        try:
            yield
        except (StorageCorrupt, StorageMissing) as error:
            self.problems.add(
                VerifyProblem(
                    code, error.message, hint or error.hint, table=table, branch=branch, file=file
                )
            )
        except OmniGraphError as error:
            told = VerifyProblem(code, f"{what}: {error.message}", hint or error.hint)
            self.problems.add(_placed(told, table, branch, file))
        except Exception as error:
            told = VerifyProblem(
                ProblemCode.CHECK_FAILED,
                f"{what}: the check broke off ({type(error).__name__})",
                "repeat it; if it breaks off again, this is a bug here",
            )
            self.problems.add(_placed(told, table, branch, file))


def _placed(
    problem: VerifyProblem, table: str | None, branch: str | None, file: str | None
) -> VerifyProblem:
    return replace(problem, table=table, branch=branch, file=file)


def label(snapshot: Snapshot) -> str:
    return branch_label(snapshot.branch)
