"""The state of a shell, and the execution of statements.

An error is printed and the shell continues. Ctrl-C cancels a query at any time; a write is finished
first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.files import read_source
from omnigraph.cli.output import terminal
from omnigraph.cli.output.rows import Layout, show_result
from omnigraph.cli.program import report_error
from omnigraph.cli.shell.interrupts import ShellInterrupts
from omnigraph.cli.shell.statements import ShellParameter, ShellStatement, parse_statements
from omnigraph.cli.targets import GraphTarget
from omnigraph.errors import InputError, ParameterError, QueryNotFound
from omnigraph.lang.closest import closest
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.read.limits import Cancel
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.lang.schema.catalog import Catalog


@dataclass(frozen=True, slots=True)
class ShellQuery:
    """A query that can be called by name, from a file or typed earlier."""

    name: str
    head: str
    writes: bool
    source: Path | str


class Session:
    """An open graph, the current branch or state, and the output settings."""

    def __init__(
        self,
        graph: Graph,
        target: GraphTarget,
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
        self.pinned: dict[str, Any] = {}
        """An earlier state to read, as arguments of the engine; empty for the head."""
        self.pinned_name = ""
        self.format = "table"
        self.explains = False
        self.times = False
        self.is_over = False
        self.interrupts: ShellInterrupts | None = None
        """Handles Ctrl-C at a terminal; in a script it ends the program."""
        self.params: dict[str, ShellParameter] = {}
        self.queries: dict[str, ShellQuery] = {}
        self._catalog: Catalog | None = None

    @property
    def prompt(self) -> str:
        at = f"@{self.pinned_name}" if self.pinned_name else ""
        return terminal.visible(f"omnigraph:{self.branch}{at}> ")

    @property
    def catalog(self) -> Catalog:
        """The schema, read at most once per statement."""
        if self._catalog is None:
            self._catalog = self.graph.catalog
        return self._catalog

    @property
    def snapshot_arguments(self) -> dict[str, Any]:
        """The state to read, as arguments of the engine."""
        return self.pinned or {"branch": self.branch}

    # -- statements ----------------------------------------------------------------------

    def run(self, text: str) -> None:
        """Run typed text: one query after the other."""
        for statement in parse_statements(text, self.params):
            if not statement.shift:
                self._remember(statement)
            with statement.mapping_diagnostics():
                self.execute(statement.text, statement.name, statement.writes)

    def call(self, name: str, given: Mapping[str, Any]) -> None:
        """Run a stored query, with additional parameters."""
        query = self.queries.get(name)
        if query is None:
            close = closest(name, self.queries)
            hint = f"did you mean {close}?" if close else "see .queries"
            raise QueryNotFound(f"stored query '{name}' not found", hint=hint)
        self.execute(query.source, name, query.writes, given)

    def run_file(self, path: str, name: str | None) -> None:
        """Run a query from a file."""
        query = select_query(read_queries(read_source(path)), name)
        self.execute(Path(path), query.name, isinstance(query.body, ast.MutationBody))

    def add_queries(self, path: str) -> None:
        """Make the queries of a file callable by name."""
        for query in read_queries(read_source(path)).queries:
            self._store(query, Path(path))

    def _remember(self, statement: ShellStatement) -> None:
        from omnigraph.lang.diagnostics import Source

        query = select_query(read_queries(Source("<shell>", statement.text)), statement.name)
        self._store(query, statement.text)

    def _store(self, query: ast.Query, source: Path | str) -> None:
        params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
        writes = isinstance(query.body, ast.MutationBody)
        self.queries[query.name] = ShellQuery(query.name, f"{query.name}({params})", writes, source)

    def execute(
        self, source: Path | str, name: str, writes: bool, given: Mapping[str, Any] | None = None
    ) -> None:
        """Run one query and show its result."""
        params = {key: param.value for key, param in self.params.items()} | dict(given or {})
        try:
            (self._change if writes else self._read)(source, name, params)
        except ParameterError as error:
            hint = f"\\param name=value sets one, .call {name} name=value gives one"
            raise ParameterError(error.message, hint=hint, details=error.details) from None

    def _read(self, source: Path | str, name: str, params: Mapping[str, Any]) -> None:
        cancel = Cancel()
        state = self.snapshot_arguments
        with self.guarded(cancel.set):
            self._explain(source, name)
            with self.graph.snapshot(**state).query(source, name, params, cancel=cancel) as result:
                show_result(result, self.format, self.layout, None)

    def _change(self, source: Path | str, name: str, params: Mapping[str, Any]) -> None:
        self.require_head()
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

    def require_head(self) -> None:
        """Raise if an earlier state is selected, which cannot be changed."""
        if self.pinned:
            raise InputError(
                f"the earlier state '{self.pinned_name}' cannot be changed",
                hint="\\at none returns to the head of the branch",
            )

    # -- interrupts and errors ----------------------------------------------------------

    def guarded(self, interrupted: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``interrupted`` on the first Ctrl-C; the second raises, as does any in a script."""
        return nullcontext() if self.interrupts is None else self.interrupts.reacting(interrupted)

    def writing(self) -> AbstractContextManager[None]:
        """Finish a write and show its result despite a Ctrl-C; a second one interrupts it."""
        return self.guarded(_note_unfinished_write)

    def attempt(self, work: Callable[[], None]) -> bool:
        """Run something and report an error; returns whether it succeeded."""
        started = time.perf_counter()
        try:
            work()
        except (terminal.ReaderGone, terminal.OutputFailed):
            # The output of the next statement would be lost too.
            raise
        except Exception as error:
            report_error(error)
        else:
            terminal.flush()
            if self.times:
                terminal.note(f"time: {(time.perf_counter() - started) * 1000:.1f} ms")
            return True
        finally:
            self._catalog = None
        return False


def _note_unfinished_write() -> None:
    # A signal handler cannot print while another print is under way.
    with suppress(RuntimeError):
        terminal.note_lines(
            ["", "note: finishing the current write first; Ctrl-C again interrupts it"]
        )
