"""The schema language: ``.pg`` texts, their catalog, their canonical form and their changes."""

from omnigraph.lang.schema.ast import (
    Annotation,
    Cardinality,
    Check,
    Constraint,
    Index,
    Key,
    Range,
    SchemaFile,
    TypeKind,
    Unique,
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
    "Check",
    "Constraint",
    "EdgeType",
    "Embed",
    "Identity",
    "Index",
    "Interface",
    "Key",
    "LINT_CODES",
    "MigrationPlan",
    "NodeType",
    "Property",
    "Range",
    "SCHEMA_CODES",
    "SchemaFile",
    "SchemaIR",
    "Step",
    "TypeKind",
    "Unique",
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
