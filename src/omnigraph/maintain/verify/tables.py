"""Tables at their pinned versions: readable, complete, and valid by the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.errors import StorageCorrupt
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext, label
from omnigraph.maintain.verify.indexes import index_problems
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem
from omnigraph.maintain.verify.rows import broken_rules, broken_values
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import Kind, kinds_of

Job = Callable[[], None]


def table_jobs(context: VerifyContext) -> list[Job]:
    """The checks of all tables, each once however many branches use it."""
    jobs: dict[object, Job] = {}
    for snapshot, pin in context.pins():
        kind = _kind(context, snapshot, pin.table_key)
        jobs.setdefault(("table", pin.ref, pin.version), _Check(context, snapshot, pin, kind).table)
        if pin.branch == snapshot.branch:
            drift = _Check(context, snapshot, pin, kind).drift
            jobs.setdefault(("drift", pin.ref, pin.version), drift)
        if kind is not None:
            ends = tuple(_node_versions(snapshot, kind))
            check = _Check(context, snapshot, pin, kind)
            jobs.setdefault(("rules", pin.ref, pin.version, ends), check.rules)
            jobs.setdefault(("indexes", pin.ref, pin.version), check.indexes)
    return list(jobs.values())


def _kind(context: VerifyContext, snapshot: Snapshot, table_key: str) -> Kind | None:
    with context.guarded("the schema of a branch", branch=label(snapshot)):
        catalog = context.catalog(snapshot)
        if catalog is not None:
            return next((k for k in kinds_of(catalog) if k.table_key == table_key), None)
    return None


def _node_versions(snapshot: Snapshot, kind: Kind) -> Iterator[object]:
    for key in _node_keys(kind):
        pin = snapshot.pin(key)
        yield None if pin is None else (pin.ref, pin.version)


def _node_keys(kind: Kind) -> list[str]:
    if not isinstance(kind, EdgeType):
        return []
    return sorted({f"node:{kind.from_type}", f"node:{kind.to_type}"})


class _Check:
    """One table of one branch."""

    def __init__(
        self, context: VerifyContext, snapshot: Snapshot, pin: Pin, kind: Kind | None
    ) -> None:
        self._context = context
        self._snapshot = snapshot
        self._pin = pin
        self._kind = kind

    def _open(self, pin: Pin) -> Table:
        return self._context.store.tables.open(pin.ref, pin.version)

    def _report(self, problem: VerifyProblem) -> None:
        located = replace(problem, table=self._pin.table_key, branch=label(self._snapshot))
        self._context.problems.add(located)

    def table(self) -> None:
        """The pinned version is readable and has the pinned number of rows."""
        pin, problems = self._pin, self._context.problems
        problems.count(tables=1)
        with self._context.guarded(
            f"version {pin.version} of '{pin.table_key}'",
            code=ProblemCode.TABLE_UNREADABLE,
            hint=FROM_BACKUP,
            table=pin.table_key,
            branch=label(self._snapshot),
        ):
            if not self._context.is_intact(pin.ref, pin.version):
                raise StorageCorrupt(
                    f"version {pin.version} of '{pin.table_key}' was not read: "
                    "files of it are damaged"
                )
            table = self._open(pin)
            rows = table.count()
            problems.count(rows=rows)
            if rows != pin.row_count:
                self._report(
                    VerifyProblem(
                        ProblemCode.ROW_COUNT_DIFFERS,
                        f"'{pin.table_key}' has {rows} rows, the graph says {pin.row_count}",
                        FROM_BACKUP,
                    )
                )
            if self._kind is None:
                return
            declared = set(self._kind.arrow_schema().names)
            if declared != set(table.schema.names):
                self._report(
                    VerifyProblem(
                        ProblemCode.COLUMNS_DIFFER,
                        f"the columns of '{pin.table_key}' are not those of the schema",
                        FROM_BACKUP,
                    )
                )
                return
            for problem in broken_values(self._kind, table):
                self._report(problem)

    def rules(self) -> None:
        """Ids, unique values, ends of edges and their number."""
        pin = self._pin
        assert self._kind is not None
        with self._context.guarded(
            f"the rows of '{pin.table_key}'",
            code=ProblemCode.TABLE_UNREADABLE,
            hint=FROM_BACKUP,
            table=pin.table_key,
            branch=label(self._snapshot),
        ):
            pins = {key: self._snapshot.pin(key) for key in _node_keys(self._kind)}
            used = [p for p in (pin, *pins.values()) if p is not None]
            if not all(self._context.is_intact(p.ref, p.version) for p in used):
                return
            ends = {key: self._open(p) for key, p in pins.items() if p is not None}
            for problem in broken_rules(self._context.store, self._kind, self._open(pin), ends):
                self._report(problem)

    def drift(self) -> None:
        """The newest version is the pinned one, unless a write is running.

        If the newest state of the branch is lost, its tables are ahead for that reason.
        """
        pin, store = self._pin, self._context.store
        if self._snapshot.branch in self._context.reverted:
            return
        with self._context.guarded(
            f"the newest version of '{pin.table_key}'",
            table=pin.table_key,
            branch=label(self._snapshot),
        ):
            head = store.tables.head(pin.ref, pin.version)
            if head <= pin.version or self._is_being_written(head):
                return
            self._report(
                VerifyProblem(
                    ProblemCode.TABLE_DRIFTED,
                    f"'{pin.table_key}' is at version {head}, but the graph shows {pin.version}",
                    "run graph.maintenance.repair()",
                )
            )

    def _is_being_written(self, head: int) -> bool:
        """Whether a writer is about to publish this version, or has by now."""
        store, key = self._context.store, self._pin.table_key
        for operation in store.sidecars.list():
            with self._context.guarded("a recovery file", code=ProblemCode.SIDECAR_DAMAGED):
                sidecar = store.sidecars.read(operation)
                if sidecar is not None and any(e.table_key == key for e in sidecar.tables):
                    return True
        current = store.manifest(self._snapshot.branch).current().pin(key)
        return current is not None and current.version >= head

    def indexes(self) -> None:
        """The indexes agree with the rows."""
        pin, kind = self._pin, self._kind
        assert kind is not None
        with self._context.guarded(
            f"the indexes of '{pin.table_key}'", table=pin.table_key, branch=label(self._snapshot)
        ):
            if not self._context.is_intact(pin.ref, pin.version):
                return
            for problem in index_problems(self._context, kind, self._open(pin)):
                self._report(problem)
