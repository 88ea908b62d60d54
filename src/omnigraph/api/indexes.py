"""``graph.indexes``: which indexes exist, and building them."""

from __future__ import annotations

from omnigraph.api.arguments import Actor, public
from omnigraph.api.handle import Handle
from omnigraph.commit.names import normal_branch
from omnigraph.commit.refs import SnapshotRef
from omnigraph.escaping import escape
from omnigraph.maintain.optimize.indexes import (
    IndexReport,
    ensure_indexes,
    index_report,
    rebuild_indexes,
)
from omnigraph.maintain.optimize.plan import DEFAULT_POLICY, MaintenancePolicy


class GraphIndexes:
    """The indexes of a graph, as ``graph.indexes``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<GraphIndexes of {escape(self._handle.uri)}>"

    @public
    def status(self, branch: str = "main", *, measure_recall: bool = False) -> IndexReport:
        """The existing indexes, their coverage, and the ones that are still to be built.

        ``measure_recall`` searches for some stored vectors and reports how many of the nearest
        each vector index finds; that reads the vectors of up to a million rows.

        Raises:
            NotFound: there is no such branch.

        >>> graph.indexes.status().indexes[0].table_key
        'node:Person'
        """
        context = self._handle.read(SnapshotRef(branch))
        return index_report(
            self._handle.store, context.catalog, context.snapshot, with_recall=measure_recall
        )

    @public
    def ensure(
        self,
        branch: str = "main",
        *,
        policy: MaintenancePolicy | None = None,
        actor: Actor | None = None,
    ) -> IndexReport:
        """Build the missing indexes of the schema; without any, nothing is committed.

        A vector index is rebuilt when the schema asks for other parameters, when the table has
        outgrown it, or when its recall is below ``policy.recall``.

        Raises:
            NotFound: there is no such branch.
            ReadOnly: the graph is open for reading.

        >>> report = graph.indexes.ensure()
        >>> graph.indexes.ensure().built
        ()
        """
        contract = self._handle.write()
        return ensure_indexes(
            self._handle.store,
            contract.catalog,
            normal_branch(branch),
            self._handle.writer(actor),
            (policy or DEFAULT_POLICY).recall,
        )

    @public
    def rebuild(
        self,
        what: str,
        column: str | None = None,
        *,
        branch: str = "main",
        actor: Actor | None = None,
    ) -> IndexReport:
        """Rebuild the indexes of a type, or of one of its columns, in one commit.

        ``what`` is a type or a table key such as ``node:Person``. For damaged indexes, or to train
        vector indexes on the current rows.

        Raises:
            InputError: there is no such type or column.

        >>> len(graph.indexes.rebuild("Person", "id").built)
        1
        """
        contract = self._handle.write()
        return rebuild_indexes(
            self._handle.store,
            contract.catalog,
            normal_branch(branch),
            self._handle.writer(actor),
            what,
            column,
        )
