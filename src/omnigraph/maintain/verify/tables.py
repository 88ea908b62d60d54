"""Tables as the graph shows them: they open, have the rows that are pinned, and keep the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.errors import StorageCorrupt
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.maintain.optimize.indexes import types_of
from omnigraph.maintain.verify.ground import FROM_BACKUP, Ground, label
from omnigraph.maintain.verify.indexes import index_problems
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem
from omnigraph.maintain.verify.rows import broken_rules, broken_values
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import Kind

Job = Callable[[], None]


def table_jobs(ground: Ground) -> list[Job]:
    """What is to be looked at, each once however many branches show it."""
    jobs: dict[object, Job] = {}
    for snapshot, pin in ground.pins():
        kind = _kind(ground, snapshot, pin.table_key)
        jobs.setdefault(("table", pin.ref, pin.version), _Check(ground, snapshot, pin, kind).table)
        if pin.branch == snapshot.branch:
            drift = _Check(ground, snapshot, pin, kind).drift
            jobs.setdefault(("drift", pin.ref, pin.version), drift)
        if kind is not None:
            ends = tuple(_places(snapshot, kind))
            check = _Check(ground, snapshot, pin, kind)
            jobs.setdefault(("rules", pin.ref, pin.version, ends), check.rules)
            jobs.setdefault(("indexes", pin.ref, pin.version), check.indexes)
    return list(jobs.values())


def _kind(ground: Ground, snapshot: Snapshot, table_key: str) -> Kind | None:
    with ground.guarded("the schema of a branch", branch=label(snapshot)):
        catalog = ground.catalog(snapshot)
        if catalog is not None:
            return next((k for k in types_of(catalog) if k.table_key == table_key), None)
    return None


def _places(snapshot: Snapshot, kind: Kind) -> Iterator[object]:
    for key in _node_keys(kind):
        pin = snapshot.pin(key)
        yield None if pin is None else (pin.ref, pin.version)


def _node_keys(kind: Kind) -> list[str]:
    if not isinstance(kind, EdgeType):
        return []
    return sorted({f"node:{kind.from_type}", f"node:{kind.to_type}"})


class _Check:
    """One table of one branch."""

    def __init__(self, ground: Ground, snapshot: Snapshot, pin: Pin, kind: Kind | None) -> None:
        self._ground = ground
        self._snapshot = snapshot
        self._pin = pin
        self._kind = kind

    def _open(self, pin: Pin) -> Table:
        return self._ground.store.tables.open(pin.ref, pin.version)

    def _told(self, problem: VerifyProblem) -> None:
        placed = replace(problem, table=self._pin.table_key, branch=label(self._snapshot))
        self._ground.problems.add(placed)

    def table(self) -> None:
        """It opens at its pin, all of it can be read, and it has as many rows as the pin says."""
        pin, problems = self._pin, self._ground.problems
        problems.count(tables=1)
        with self._ground.guarded(
            f"version {pin.version} of '{pin.table_key}'",
            code=ProblemCode.TABLE_UNREADABLE,
            hint=FROM_BACKUP,
            table=pin.table_key,
            branch=label(self._snapshot),
        ):
            if not self._ground.is_whole(pin.ref, pin.version):
                raise StorageCorrupt(
                    f"version {pin.version} of '{pin.table_key}' was not read: "
                    "files of it are damaged"
                )
            table = self._open(pin)
            rows = table.count()
            problems.count(rows=rows)
            if rows != pin.row_count:
                self._told(
                    VerifyProblem(
                        ProblemCode.ROW_COUNT_DIFFERS,
                        f"'{pin.table_key}' has {rows} rows, the graph says {pin.row_count}",
                        FROM_BACKUP,
                    )
                )
            if self._kind is None:
                return
            wanted = set(self._kind.arrow_schema().names)
            if wanted != set(table.schema.names):
                self._told(
                    VerifyProblem(
                        ProblemCode.COLUMNS_DIFFER,
                        f"the columns of '{pin.table_key}' are not those of the schema",
                        FROM_BACKUP,
                    )
                )
                return
            for problem in broken_values(self._kind, table):
                self._told(problem)

    def rules(self) -> None:
        """Ids, unique values, ends of edges and their number."""
        pin = self._pin
        assert self._kind is not None
        with self._ground.guarded(
            f"the rows of '{pin.table_key}'",
            code=ProblemCode.TABLE_UNREADABLE,
            hint=FROM_BACKUP,
            table=pin.table_key,
            branch=label(self._snapshot),
        ):
            pins = {key: self._snapshot.pin(key) for key in _node_keys(self._kind)}
            shown = [each for each in (pin, *pins.values()) if each is not None]
            if not all(self._ground.is_whole(each.ref, each.version) for each in shown):
                return
            ends = {key: self._open(each) for key, each in pins.items() if each is not None}
            for problem in broken_rules(self._ground.store, self._kind, self._open(pin), ends):
                self._told(problem)

    def drift(self) -> None:
        """The newest version is the one that the graph shows, unless a write is under way.

        Where the newest state of the branch is lost, tables are ahead because of that.
        """
        pin, store = self._pin, self._ground.store
        if self._snapshot.branch in self._ground.reverted:
            return
        with self._ground.guarded(
            f"the newest version of '{pin.table_key}'",
            table=pin.table_key,
            branch=label(self._snapshot),
        ):
            head = store.tables.head(pin.ref, pin.version)
            if head <= pin.version or self._is_being_written(head):
                return
            self._told(
                VerifyProblem(
                    ProblemCode.TABLE_DRIFTED,
                    f"'{pin.table_key}' is at version {head}, but the graph shows {pin.version}",
                    "run graph.maintenance.repair()",
                )
            )

    def _is_being_written(self, head: int) -> bool:
        """Whether a writer is between its table and its publish, or behind it by now."""
        store, key = self._ground.store, self._pin.table_key
        for operation in store.sidecars.list():
            with self._ground.guarded("a recovery file", code=ProblemCode.SIDECAR_DAMAGED):
                sidecar = store.sidecars.read(operation)
                if sidecar is not None and any(e.table_key == key for e in sidecar.tables):
                    return True
        now = store.manifest(self._snapshot.branch).current().pin(key)
        return now is not None and now.version >= head

    def indexes(self) -> None:
        """What an index finds is what is there."""
        pin, kind = self._pin, self._kind
        assert kind is not None
        with self._ground.guarded(
            f"the indexes of '{pin.table_key}'", table=pin.table_key, branch=label(self._snapshot)
        ):
            if not self._ground.is_whole(pin.ref, pin.version):
                return
            for problem in index_problems(self._ground, kind, self._open(pin)):
                self._told(problem)
