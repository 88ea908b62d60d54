"""OmniGraph: a lakehouse-native typed property graph with git-style workflows.

The public surface as far as it exists: compile a schema, compile a query against it, and the
tree of errors. Importing this package is cheap: a name that needs a library is loaded when it
is first used.

>>> from omnigraph import Source, compile_schema
>>> catalog = compile_schema(Source("people.pg", "node Person { name: String @key }"))
>>> list(catalog.node_types)
['Person']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.diagnostics import Diagnostic, Severity, Source, Span
from omnigraph.errors import (
    InputError,
    InternalError,
    LanguageError,
    OmniGraphError,
    PlanError,
    QueryError,
    SchemaError,
)

if TYPE_CHECKING:
    from omnigraph.lang.schema import compile_schema
    from omnigraph.plan import compile_query

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "compile_schema",
    "compile_query",
    "Source",
    "Span",
    "Severity",
    "Diagnostic",
    "OmniGraphError",
    "LanguageError",
    "SchemaError",
    "QueryError",
    "PlanError",
    "InputError",
    "InternalError",
]

_LAZY = {
    "compile_schema": "omnigraph.lang.schema",
    "compile_query": "omnigraph.plan",
}


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
