"""The state of a check: catalog, parameters, bound variables and findings.

A check never stops at the first error. An invalid part is reported once and has no value: a rule
raises ``Invalid``, code that checks several parts catches it, and code that uses the part reports
nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import ParamSpec, TypeVar

from omnigraph.lang.diagnostics import MAX_REPORTED, Diagnostic, Phase, Severity, Source, Span
from omnigraph.lang.query.typed import EntityKind, hidden_name, is_hidden
from omnigraph.lang.schema.catalog import Catalog, Property
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass

P = ParamSpec("P")
T = TypeVar("T")


class Invalid(Exception):
    """A part of a query is invalid; its diagnostic is already recorded."""


@dataclass(frozen=True, slots=True)
class BoundVariable:
    """The type bound to a variable."""

    kind: EntityKind
    type_name: str
    span: Span


@dataclass(slots=True)
class Context:
    """The state of checking one query."""

    catalog: Catalog
    source: Source
    params: Mapping[str, PropType]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    used_params: set[str] = field(default_factory=set)
    error_count: int = 0
    _anonymous: int = 0

    def error(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.error_count += 1
        if self.error_count <= MAX_REPORTED:
            diagnostic = Diagnostic(Phase.TYPE, code, message, self.source, span, hint)
            self.diagnostics.append(diagnostic)

    def refuse(self, code: str, message: str, span: Span, hint: str | None = None) -> Invalid:
        """Report, and return the exception to raise."""
        self.error(code, message, span, hint)
        return Invalid()

    def attempt(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of a check, or ``None`` if the part is invalid."""
        try:
            return check(*args, **kwargs)
        except Invalid:
            return None

    def warn(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Add a warning, which does not invalidate the query; only lint shows it."""
        self.diagnostics.append(
            Diagnostic(Phase.LINT, code, message, self.source, span, hint, Severity.WARNING)
        )

    def anonymous(self) -> str:
        """A fresh name for ``$_``."""
        self._anonymous += 1
        return hidden_name("_", self._anonymous)

    def param(self, name: str) -> PropType | None:
        """The type of a parameter, which is marked as used."""
        type_ = self.params.get(name)
        if type_ is not None:
            self.used_params.add(name)
        return type_


@dataclass(slots=True)
class VariableScope:
    """The variables of one block; nested blocks see them, enclosing blocks do not."""

    parent: VariableScope | None = None
    bound: dict[str, BoundVariable] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def _visible(self) -> Iterator[VariableScope]:
        """The block and its enclosing blocks, nearest first."""
        scope: VariableScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def get(self, name: str) -> BoundVariable | None:
        scope: VariableScope | None = self
        while scope is not None:
            if name in scope.bound:
                return scope.bound[name]
            scope = scope.parent
        return None

    def is_broken(self, name: str) -> bool:
        """Whether the variable appears in an invalid clause, so that its type is unknown."""
        return any(name in scope.broken for scope in self._visible())

    def names(self) -> list[str]:
        """Every visible variable that the query names, nearest block first, in binding order."""
        names = dict.fromkeys(name for scope in self._visible() for name in scope.bound)
        return [name for name in names if not is_hidden(name)]


def properties_of(catalog: Catalog, bound: BoundVariable) -> Mapping[str, Property]:
    """The declared properties of the type bound to a variable."""
    if bound.kind is EntityKind.NODE:
        return catalog.node_types[bound.type_name].properties
    return catalog.edge_types[bound.type_name].properties
