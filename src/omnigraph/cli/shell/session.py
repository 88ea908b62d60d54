"""What a shell knows while it runs, and how it runs a statement.

A failure is told and the shell goes on. Reading can be given up with Ctrl-C at any moment;
a write is not left half-way for it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.files import read_source
from omnigraph.cli.output import terminal
from omnigraph.cli.output.rows import Layout, show_result
from omnigraph.cli.program import tell
from omnigraph.cli.shell.interrupts import Interrupts
from omnigraph.cli.shell.statements import Parameter, Statement, statements_of
from omnigraph.cli.targets import Target
from omnigraph.errors import InputError, ParameterError, QueryNotFound
from omnigraph.lang.closest import closest
from omnigraph.lang.query import ast
from omnigraph.lang.query.select import read_queries, select_query
from omnigraph.read.limits import Cancel

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.lang.schema.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Stored:
    """A query that can be called by its name: one of a file, or one that was typed."""

    name: str
    head: str
    writes: bool
    source: Path | str


class Session:
    """A graph, where on it one stands, and how answers are shown."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        arguments: argparse.Namespace,
        layout: Layout,
        *,
        is_live: bool,
    ) -> None:
        self.graph = graph
        self.target = target
        self.arguments = arguments
        self.layout = layout
        self.is_live = is_live
        self.branch = "main"
        self.moment: dict[str, Any] = {}
        """An earlier state that is read, as the arguments of the engine; empty for the newest."""
        self.moment_name = ""
        self.format = "table"
        self.explains = False
        self.times = False
        self.is_over = False
        self.interrupts: Interrupts | None = None
        """Who takes Ctrl-C where somebody types; in a script it ends the program."""
        self.params: dict[str, Parameter] = {}
        self.queries: dict[str, Stored] = {}
        self._catalog: Catalog | None = None

    @property
    def prompt(self) -> str:
        at = f"@{self.moment_name}" if self.moment_name else ""
        return terminal.visible(f"omnigraph:{self.branch}{at}> ")

    @property
    def catalog(self) -> Catalog:
        """The schema, looked at once between two statements."""
        if self._catalog is None:
            self._catalog = self.graph.catalog
        return self._catalog

    # -- statements ----------------------------------------------------------------------

    def run(self, text: str) -> None:
        """Run what was typed: one query after the other."""
        for statement in statements_of(text, self.params):
            if not statement.shift:
                self._remember(statement)
            with statement.in_place():
                self.ask(statement.text, statement.name, statement.writes)

    def call(self, name: str, given: Mapping[str, Any]) -> None:
        """Run a stored query, with some parameters of its own."""
        found = self.queries.get(name)
        if found is None:
            close = closest(name, self.queries)
            hint = f"did you mean {close}?" if close else "see .queries"
            raise QueryNotFound(f"there is no stored query '{name}'", hint=hint)
        self.ask(found.source, name, found.writes, given)

    def run_file(self, path: str, name: str | None) -> None:
        """Run a query of a file."""
        query = select_query(read_queries(read_source(path)), name)
        self.ask(Path(path), query.name, isinstance(query.body, ast.MutationBody))

    def add_queries(self, path: str) -> int:
        """Make the queries of a file callable by their names; says how many they are."""
        found = read_queries(read_source(path)).queries
        for query in found:
            self._store(query, Path(path))
        return len(found)

    def _remember(self, statement: Statement) -> None:
        from omnigraph.lang.diagnostics import Source

        query = select_query(read_queries(Source("<shell>", statement.text)), statement.name)
        self._store(query, statement.text)

    def _store(self, query: ast.Query, source: Path | str) -> None:
        params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
        writes = isinstance(query.body, ast.MutationBody)
        self.queries[query.name] = Stored(query.name, f"{query.name}({params})", writes, source)

    def ask(
        self, source: Path | str, name: str, writes: bool, given: Mapping[str, Any] | None = None
    ) -> None:
        """Run one query and show its answer."""
        params = {key: param.value for key, param in self.params.items()} | dict(given or {})
        try:
            (self._change if writes else self._read)(source, name, params)
        except ParameterError as error:
            hint = f"\\param name=value sets one, .call {name} name=value gives one"
            raise ParameterError(error.message, hint=hint, details=error.details) from None

    def _read(self, source: Path | str, name: str, params: Mapping[str, Any]) -> None:
        cancel = Cancel()
        moment = self.moment or {"branch": self.branch}
        with self.guarded(cancel.set):
            self._explain(source, name)
            with self.graph.snapshot(**moment).query(source, name, params, cancel=cancel) as result:
                told = {"branch": None, "snapshot": None, **result.target}
                show_result(result, self.format, self.layout, told, None)

    def _change(self, source: Path | str, name: str, params: Mapping[str, Any]) -> None:
        self.check_newest()
        self._explain(source, name)
        with self.writing():
            receipt = self.graph.mutate(source, name, params, self.branch)
            terminal.show(
                f"changed {receipt.branch} via {name}: "
                f"{receipt.affected_nodes} nodes, {receipt.affected_edges} edges"
            )
            if receipt.commit_id is not None:
                terminal.show(f"commit_id: {receipt.commit_id}")

    def _explain(self, source: Path | str, name: str) -> None:
        if self.explains:
            plan = self.graph.snapshot(self.branch).explain(source, name)
            terminal.show_lines(plan.text.splitlines())
            terminal.flush()

    def check_newest(self) -> None:
        """Refuse to change what is past."""
        if self.moment:
            raise InputError(
                f"'{self.moment_name}' is past and cannot be changed",
                hint="\\at none goes back to the newest state",
            )

    # -- around all that is typed ----------------------------------------------------------

    def guarded(self, interrupted: Callable[[], None]) -> AbstractContextManager[None]:
        """Take the first Ctrl-C as said here; the second breaks off, as any does in a pipe."""
        return nullcontext() if self.interrupts is None else self.interrupts.reacting(interrupted)

    def writing(self) -> AbstractContextManager[None]:
        """Finish a write, and say what it did, also when Ctrl-C comes; a second one breaks off."""
        return self.guarded(_wait)

    def attempt(self, work: Callable[[], None]) -> bool:
        """Do something and tell what went wrong; whether it went well."""
        started = time.perf_counter()
        try:
            work()
        except (terminal.ReaderGone, terminal.OutputFailed):
            # Nobody would see the answer to the next statement either.
            raise
        except Exception as error:
            tell(error)
        else:
            terminal.flush()
            if self.times:
                terminal.note(f"time: {(time.perf_counter() - started) * 1000:.1f} ms")
            return True
        finally:
            self._catalog = None
        return False


def _wait() -> None:
    # A handler that comes while something else is being written cannot write.
    with suppress(RuntimeError):
        terminal.note_lines(
            ["", "note: the write under way is finished first; Ctrl-C again breaks it off"]
        )
