"""Tables at their pinned versions: readable, complete, and valid by the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from omnigraph.commit.names import branch_label
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.errors import StorageCorrupt
from omnigraph.lang.schema.catalog import EdgeType, EntityType, entity_types
from omnigraph.maintain.running_writes import drifted_head
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext
from omnigraph.maintain.verify.indexes import index_problems
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem
from omnigraph.maintain.verify.rows import broken_rules, broken_values
from omnigraph.storage.tables.table import Table

Job = Callable[[], None]


def table_jobs(context: VerifyContext) -> list[Job]:
    """The checks of all tables, each once however many branches use it."""
    jobs: dict[object, Job] = {}
    for snapshot, pin in context.pins():
        entity_type = _entity_type(context, snapshot, pin.table_key)
        check = _Check(context, snapshot, pin, entity_type)
        jobs.setdefault(("table", pin.ref, pin.version), check.table)
        if pin.branch == snapshot.branch:
            jobs.setdefault(("drift", pin.ref, pin.version), check.drift)
        if entity_type is not None:
            ends = tuple(snapshot.table_version(key) for key in _node_keys(entity_type))
            jobs.setdefault(("rules", pin.ref, pin.version, ends), check.rules)
            jobs.setdefault(("indexes", pin.ref, pin.version), check.indexes)
    return list(jobs.values())


def _entity_type(context: VerifyContext, snapshot: Snapshot, table_key: str) -> EntityType | None:
    with context.guarded("the schema of a branch", branch=branch_label(snapshot.branch)):
        catalog = context.catalog(snapshot)
        if catalog is not None:
            return next((k for k in entity_types(catalog) if k.table_key == table_key), None)
    return None


def _node_keys(entity_type: EntityType) -> list[str]:
    if not isinstance(entity_type, EdgeType):
        return []
    return sorted({f"node:{entity_type.from_type}", f"node:{entity_type.to_type}"})


class _Check:
    """One table of one branch."""

    def __init__(
        self, context: VerifyContext, snapshot: Snapshot, pin: Pin, entity_type: EntityType | None
    ) -> None:
        self._context = context
        self._snapshot = snapshot
        self._pin = pin
        self._entity_type = entity_type
        self._branch = branch_label(snapshot.branch)

    def _open(self, pin: Pin) -> Table:
        return self._context.store.tables.open(pin.ref, pin.version)

    def _guarded(
        self, what: str, code: ProblemCode = ProblemCode.CHECK_FAILED, hint: str | None = None
    ) -> AbstractContextManager[None]:
        what, key = f"{what} of '{self._pin.table_key}'", self._pin.table_key
        return self._context.guarded(what, code=code, hint=hint, table=key, branch=self._branch)

    def _add(self, code: ProblemCode, message: str, hint: str | None) -> None:
        self._context.add(code, message, hint, table=self._pin.table_key, branch=self._branch)

    def _report(self, problems: Iterable[VerifyProblem]) -> None:
        for problem in problems:
            self._add(problem.code, problem.message, problem.hint)

    def table(self) -> None:
        """The pinned version is readable and has the pinned number of rows."""
        pin, problems = self._pin, self._context.problems
        problems.count(tables=1)
        with self._guarded(f"version {pin.version}", ProblemCode.TABLE_UNREADABLE, FROM_BACKUP):
            if not self._context.is_intact(pin.ref, pin.version):
                raise StorageCorrupt(
                    f"version {pin.version} of '{pin.table_key}' was not read: "
                    "files of it are damaged"
                )
            table = self._open(pin)
            rows = table.count()
            problems.count(rows=rows)
            if rows != pin.row_count:
                message = f"'{pin.table_key}' has {rows} rows, not {pin.row_count} as recorded"
                self._add(ProblemCode.ROW_COUNT_DIFFERS, message, FROM_BACKUP)
            if self._entity_type is None:
                return
            if set(self._entity_type.arrow_schema().names) != set(table.schema.names):
                message = f"the columns of '{pin.table_key}' are not those of the schema"
                self._add(ProblemCode.COLUMNS_DIFFER, message, FROM_BACKUP)
                return
            self._report(broken_values(self._entity_type, table))

    def rules(self) -> None:
        """Ids, unique values, ends of edges and their number."""
        pin, context = self._pin, self._context
        assert self._entity_type is not None
        with self._guarded("the rows", ProblemCode.TABLE_UNREADABLE, FROM_BACKUP):
            pins = {key: self._snapshot.pin(key) for key in _node_keys(self._entity_type)}
            used = [p for p in (pin, *pins.values()) if p is not None]
            if all(context.is_intact(p.ref, p.version) for p in used):
                ends = {key: self._open(p) for key, p in pins.items() if p is not None}
                self._report(broken_rules(context.store, self._entity_type, self._open(pin), ends))

    def drift(self) -> None:
        """The newest version is the pinned one, unless a write is running.

        If the newest state of the branch is lost, its tables are ahead for that reason.
        """
        pin = self._pin
        if self._snapshot.branch in self._context.reverted:
            return
        with self._guarded("the newest version"):
            head = drifted_head(self._context.store, pin)
            if head is not None:
                versions = f"at version {head}, but the graph shows {pin.version}"
                message, hint = f"'{pin.table_key}' is {versions}", "run graph.maintenance.repair()"
                self._add(ProblemCode.TABLE_DRIFTED, message, hint)

    def indexes(self) -> None:
        """The indexes agree with the rows."""
        pin = self._pin
        assert self._entity_type is not None
        with self._guarded("the indexes"):
            if self._context.is_intact(pin.ref, pin.version):
                self._report(index_problems(self._context, self._entity_type, self._open(pin)))
