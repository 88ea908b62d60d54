"""The schema language: ``.pg`` texts, their catalog, their canonical form and their changes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.lang.schema.ast import (
        Annotation,
        Cardinality,
        CheckConstraint,
        Constraint,
        IndexConstraint,
        KeyConstraint,
        RangeConstraint,
        SchemaFile,
        TypeKind,
        UniqueConstraint,
    )
    from omnigraph.lang.schema.catalog import (
        Catalog,
        EdgeType,
        Embed,
        Interface,
        NodeType,
        Property,
        catalog_from_ir,
        catalog_of,
        text_of,
    )
    from omnigraph.lang.schema.codes import SCHEMA_CODES
    from omnigraph.lang.schema.compile import analyze_schema, compile_schema
    from omnigraph.lang.schema.format import format_schema, print_schema
    from omnigraph.lang.schema.identity import Identity, evolve_identity, initial_identity
    from omnigraph.lang.schema.ir import SchemaIR, schema_hash
    from omnigraph.lang.schema.keys import key_id
    from omnigraph.lang.schema.lint import lint_schema
    from omnigraph.lang.schema.lint_codes import LINT_CODES, lint_code
    from omnigraph.lang.schema.migrate import MigrationPlan, plan_migration
    from omnigraph.lang.schema.parser import parse_schema
    from omnigraph.lang.schema.steps import Step, step_from_json

__all__ = [
    "Annotation",
    "Cardinality",
    "Catalog",
    "CheckConstraint",
    "Constraint",
    "EdgeType",
    "Embed",
    "Identity",
    "IndexConstraint",
    "Interface",
    "KeyConstraint",
    "LINT_CODES",
    "MigrationPlan",
    "NodeType",
    "Property",
    "RangeConstraint",
    "SCHEMA_CODES",
    "SchemaFile",
    "SchemaIR",
    "Step",
    "TypeKind",
    "UniqueConstraint",
    "analyze_schema",
    "catalog_from_ir",
    "catalog_of",
    "compile_schema",
    "evolve_identity",
    "format_schema",
    "initial_identity",
    "key_id",
    "lint_code",
    "lint_schema",
    "parse_schema",
    "plan_migration",
    "print_schema",
    "schema_hash",
    "step_from_json",
    "text_of",
]

_HOMES = {
    "Annotation": "omnigraph.lang.schema.ast",
    "Cardinality": "omnigraph.lang.schema.ast",
    "CheckConstraint": "omnigraph.lang.schema.ast",
    "Constraint": "omnigraph.lang.schema.ast",
    "IndexConstraint": "omnigraph.lang.schema.ast",
    "KeyConstraint": "omnigraph.lang.schema.ast",
    "RangeConstraint": "omnigraph.lang.schema.ast",
    "SchemaFile": "omnigraph.lang.schema.ast",
    "TypeKind": "omnigraph.lang.schema.ast",
    "UniqueConstraint": "omnigraph.lang.schema.ast",
    "Catalog": "omnigraph.lang.schema.catalog",
    "EdgeType": "omnigraph.lang.schema.catalog",
    "Embed": "omnigraph.lang.schema.catalog",
    "Interface": "omnigraph.lang.schema.catalog",
    "NodeType": "omnigraph.lang.schema.catalog",
    "Property": "omnigraph.lang.schema.catalog",
    "catalog_from_ir": "omnigraph.lang.schema.catalog",
    "catalog_of": "omnigraph.lang.schema.catalog",
    "text_of": "omnigraph.lang.schema.catalog",
    "SCHEMA_CODES": "omnigraph.lang.schema.codes",
    "analyze_schema": "omnigraph.lang.schema.compile",
    "compile_schema": "omnigraph.lang.schema.compile",
    "format_schema": "omnigraph.lang.schema.format",
    "print_schema": "omnigraph.lang.schema.format",
    "Identity": "omnigraph.lang.schema.identity",
    "evolve_identity": "omnigraph.lang.schema.identity",
    "initial_identity": "omnigraph.lang.schema.identity",
    "SchemaIR": "omnigraph.lang.schema.ir",
    "schema_hash": "omnigraph.lang.schema.ir",
    "key_id": "omnigraph.lang.schema.keys",
    "lint_schema": "omnigraph.lang.schema.lint",
    "LINT_CODES": "omnigraph.lang.schema.lint_codes",
    "lint_code": "omnigraph.lang.schema.lint_codes",
    "MigrationPlan": "omnigraph.lang.schema.migrate",
    "plan_migration": "omnigraph.lang.schema.migrate",
    "parse_schema": "omnigraph.lang.schema.parser",
    "Step": "omnigraph.lang.schema.steps",
    "step_from_json": "omnigraph.lang.schema.steps",
}


def __getattr__(name: str) -> Any:
    """A name is loaded when it is first used: few callers need all of the language."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'omnigraph.lang.schema' has no attribute {name!r}")
    return getattr(import_module(home), name)
