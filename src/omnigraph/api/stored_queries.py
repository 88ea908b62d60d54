"""Stored queries: a registry of named queries from ``.gq`` texts, checked against a schema.

A registry does not change. Whether a query fits is derived from the schema in force, so an apply
that breaks a query, or mends it, takes effect everywhere at once, and nothing has to be marked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from omnigraph.errors import InputError, LanguageError, OmniGraphError, QueryBroken, QueryNotFound
from omnigraph.lang.closest import suggest
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import PropType
from omnigraph.lang.values.json_schemas import JsonSchema, object_schema, row_schema, type_schema
from omnigraph.plan import plan_query
from omnigraph.plan.nodes import MutationPlan, Plan, ReadPlan
from omnigraph.records import dataclass

_SCHEMAS_KEPT = 4
"""For how many schemas the outcome of the check is kept: the present one, and a few old ones."""
_COUNT: JsonSchema = {"type": "integer", "minimum": 0}


class NamedText(Protocol):
    """The name of a query, and the text that declares it."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query that a graph or a server has under a name."""

    name: str
    is_mutation: bool
    params: Mapping[str, str]
    """The type of each parameter, as written in the query."""
    description: str | None = None
    instruction: str | None = None
    deprecated: str | None = None
    """Why it should not be used any more, and what to use instead."""
    broken: str | None = None
    """Why it does not fit the schema; such a query cannot be run."""
    params_schema: Mapping[str, Any] | None = None
    """The JSON Schema of its parameters."""
    result_schema: Mapping[str, Any] | None = None
    """The JSON Schema of its rows, or of what a mutation changed; none of a broken query."""


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """One query of a registry. ``text`` may declare others too."""

    name: str
    text: str
    query: ast.Query

    @property
    def is_mutation(self) -> bool:
        return self.query.is_mutation

    @property
    def source(self) -> Source:
        """The whole text, with a name for messages."""
        return Source(f"{self.name}.gq", self.text)

    @property
    def own_text(self) -> str:
        """Its declaration, without the other queries of the text."""
        span = self.query.span
        return self.text[span.start : span.end]

    @property
    def advice(self) -> Iterator[str]:
        """What an agent that calls the query may stumble over."""
        for param in self.query.params:
            if param.type.is_vector and not param.type.nullable:
                yield f"parameter `${param.name}` is a vector, which an agent cannot supply"

    @property
    def params_schema(self) -> JsonSchema:
        """The JSON Schema of its parameters."""
        params = {param.name: type_schema(param.type) for param in self.query.params}
        required = [param.name for param in self.query.params if not param.type.nullable]
        return object_schema(params, required)

    def require(self, kind: Literal["read", "mutation"]) -> None:
        """Raise unless the query is of a kind."""
        if self.is_mutation != (kind == "mutation"):
            is_kind, method = ("a mutation", "invoke_mutation")
            if not self.is_mutation:
                is_kind, method = ("a read", "invoke")
            raise InputError(f"stored query '{self.name}' is {is_kind}", hint=f"use {method}")

    @contextmanager
    def refused_if_broken(self) -> Iterator[None]:
        """Turn errors in the text, which was valid once, into ``QueryBroken``."""
        try:
            yield
        except LanguageError as error:
            raise broken_query(self.name, error) from error


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query under one schema: its plan, or why it has none."""

    stored: RegisteredQuery
    plan: Plan | None
    problem: OmniGraphError | None = None

    @property
    def result_schema(self) -> JsonSchema | None:
        """The JSON Schema of what it returns."""
        if isinstance(self.plan, ReadPlan):
            return {"type": "array", "items": row_schema(result_types(self.plan))}
        if isinstance(self.plan, MutationPlan):
            names = ("affected_nodes", "affected_edges")
            return {
                "type": "object",
                "properties": dict.fromkeys(names, _COUNT),
                "required": list(names),
            }
        return None

    def describe(self) -> StoredQuery:
        """The query for users."""
        query = self.stored.query
        return StoredQuery(
            self.stored.name,
            query.is_mutation,
            {param.name: str(param.type) for param in query.params},
            query.description,
            query.instruction,
            query.deprecated,
            None if self.problem is None else self.problem.message,
            self.stored.params_schema,
            self.result_schema,
        )


def result_types(plan: ReadPlan) -> dict[str, PropType]:
    """The types of the columns of a result; what is computed may be null."""
    return {
        column.name: column.expr.type
        if isinstance(column.expr, typed.Column | typed.Entity)
        else column.expr.type.as_nullable()
        for column in plan.columns
    }


class StoredQueries(Mapping[str, RegisteredQuery]):
    """The stored queries of a graph, by name. Safe to share between threads."""

    def __init__(self, queries: Iterable[RegisteredQuery] = ()) -> None:
        self._queries = {query.name: query for query in sorted(queries, key=lambda q: q.name)}
        self._checked: dict[str, Mapping[str, CheckedQuery]] = {}

    @classmethod
    def read(cls, files: Iterable[NamedText]) -> Self:
        """Read the declared query of each text; a text that cannot be read raises."""
        queries: dict[str, RegisteredQuery] = {}
        for file in files:
            declared = select_query(read_queries(Source(f"{file.name}.gq", file.text)), file.name)
            if file.name in queries:
                raise InputError(f"stored query '{file.name}' is declared twice")
            queries[file.name] = RegisteredQuery(file.name, file.text, declared)
        return cls(queries.values())

    @classmethod
    def from_directory(cls, directory: str | os.PathLike[str]) -> Self:
        """Read every query that the ``.gq`` files of a directory declare.

        Raises:
            InputError: the directory or a file cannot be read, or two queries have one name.
            LanguageError: a text is wrong.
        """
        scanned = scan_directory(directory)
        for problem in scanned.problems:
            raise problem.error
        return cls(scanned.queries)

    def named(self, name: str) -> RegisteredQuery:
        """The query of a name; raises ``QueryNotFound``."""
        stored = self._queries.get(name)
        if stored is None:
            raise QueryNotFound(
                f"stored query '{name}' not found", hint=suggest(name, list(self._queries))
            )
        return stored

    def checked(self, catalog: Catalog) -> Mapping[str, CheckedQuery]:
        """Every query under a schema; computed once for each schema."""
        checked = self._checked.get(catalog.schema_hash)
        if checked is None:
            checked = {name: _check(stored, catalog) for name, stored in self._queries.items()}
            kept = dict(list(self._checked.items())[1 - _SCHEMAS_KEPT :])
            # Replaced as a whole: other threads may be reading it.
            self._checked = {**kept, catalog.schema_hash: checked}
        return checked

    def breakages(self, catalog: Catalog) -> dict[str, str]:
        """Why a query does not fit a schema, by its name."""
        return {
            name: query.problem.message
            for name, query in self.checked(catalog).items()
            if query.problem is not None
        }

    def broken_by(self, before: Catalog, after: Catalog) -> dict[str, str]:
        """Why queries that fit one schema do not fit another, by their names."""
        if not self._queries:
            return {}
        broken = self.breakages(before)
        return {name: why for name, why in self.breakages(after).items() if name not in broken}

    def __getitem__(self, name: str) -> RegisteredQuery:
        return self._queries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


def _check(stored: RegisteredQuery, catalog: Catalog) -> CheckedQuery:
    try:
        return CheckedQuery(stored, plan_query(catalog, stored.source, stored.query))
    except OmniGraphError as error:
        return CheckedQuery(stored, None, error)


def broken_query(name: str, problem: OmniGraphError) -> QueryBroken:
    """The error of a query that does not fit the schema."""
    diagnostics = problem.details.get("diagnostics")
    return QueryBroken(
        f"stored query '{name}' does not fit the schema: {problem.message}",
        hint="whoever maintains the graph must change the query or the schema",
        details={"query": name, **({"diagnostics": diagnostics} if diagnostics else {})},
    )


# -- directories -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueryFileProblem:
    """Why a directory of queries, or one of its files, cannot be used."""

    kind: Literal["directory", "file", "text", "duplicate"]
    path: str
    error: OmniGraphError


@dataclass(frozen=True, slots=True)
class ScannedQueries:
    """The queries of a directory, and every problem with them."""

    queries: tuple[RegisteredQuery, ...]
    problems: tuple[QueryFileProblem, ...] = ()


def scan_directory(directory: str | os.PathLike[str]) -> ScannedQueries:
    """Read every query that the ``.gq`` files directly in a directory declare."""
    queries: dict[str, RegisteredQuery] = {}
    problems: list[QueryFileProblem] = []
    try:
        paths = query_files(directory)
    except InputError as error:
        return ScannedQueries((), (QueryFileProblem("directory", str(directory), error),))
    for path in paths:
        try:
            text = _text_of(path)
        except InputError as error:
            problems.append(QueryFileProblem("file", str(path), error))
            continue
        try:
            declared = read_queries(Source(str(path), text)).queries
        except OmniGraphError as error:
            problems.append(QueryFileProblem("text", str(path), error))
            continue
        for query in declared:
            if query.name in queries:
                repeated = InputError(f"stored query '{query.name}' is declared twice")
                problems.append(QueryFileProblem("duplicate", str(path), repeated))
            queries[query.name] = RegisteredQuery(query.name, text, query)
    return ScannedQueries(tuple(queries.values()), tuple(problems))


def query_files(directory: str | os.PathLike[str]) -> list[Path]:
    """The ``.gq`` files directly in a directory, sorted; raises ``InputError``."""
    try:
        return sorted(path for path in Path(directory).iterdir() if path.name.endswith(".gq"))
    except OSError as error:
        raise _unreadable(Path(directory), error) from None


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:
        raise InputError(f"'{path}' is not UTF-8 text") from None


def _unreadable(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or "it cannot be read").lower()
    return InputError(f"cannot read '{path}': {reason}")
