"""The cache of compiled queries: a repeated call pays for its parameters and execution only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from os import PathLike

from omnigraph.errors import InternalError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.texts import source_of
from omnigraph.plan import Expect, MutationPlan, ReadPlan, compile_query
from omnigraph.plan.prepared import PreparedQuery

_MOST = 256


class CompiledQueries:
    """Plans by text, name and schema. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: OrderedDict[tuple[str, str, str | None, str], PreparedQuery | MutationPlan] = (
            OrderedDict()
        )

    def read(self, catalog: Catalog, text: str | PathLike[str], name: str | None) -> PreparedQuery:
        """The plan of a query that reads."""
        plan = self._plan(catalog, text, name, Expect.READ)
        if not isinstance(plan, PreparedQuery):
            raise InternalError("a read compiled to something else")
        return plan

    def any(
        self, catalog: Catalog, text: str | PathLike[str], name: str | None
    ) -> PreparedQuery | MutationPlan:
        """The plan of a query, whatever it does."""
        return self._plan(catalog, text, name, Expect.ANY)

    def mutation(
        self, catalog: Catalog, text: str | PathLike[str], name: str | None
    ) -> MutationPlan:
        """The plan of a query that writes."""
        plan = self._plan(catalog, text, name, Expect.MUTATION)
        if not isinstance(plan, MutationPlan):
            raise InternalError("a mutation compiled to something else")
        return plan

    def _plan(
        self, catalog: Catalog, text: str | PathLike[str], name: str | None, expect: Expect
    ) -> PreparedQuery | MutationPlan:
        source = source_of(text, "<query>")
        key = (catalog.schema_hash, source.text, name, expect.value)
        with self._lock:
            cached = self._plans.get(key)
            if cached is not None:
                self._plans.move_to_end(key)
                return cached
        compiled = compile_query(catalog, source, name, expect=expect)
        plan = PreparedQuery.of(catalog, compiled) if isinstance(compiled, ReadPlan) else compiled
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _MOST:
                self._plans.popitem(last=False)
        return plan
