"""Schema text to catalog, in one call."""

from __future__ import annotations

from omnigraph.argument_checks import public
from omnigraph.errors import SchemaError
from omnigraph.lang.diagnostics import Diagnostic, Severity, Source, first_in_source
from omnigraph.lang.parsing import SourceText, as_source
from omnigraph.lang.schema.ast import SchemaFile
from omnigraph.lang.schema.catalog import Catalog, catalog_from_ir
from omnigraph.lang.schema.check import check_schema
from omnigraph.lang.schema.ir import build_ir
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.vectors import check_vectors

SCHEMA_FILE = "schema.pg"


@public
def compile_schema(source: SourceText, *, is_new: bool = False) -> Catalog:
    """The catalog of a schema text; raises ``SchemaError`` with every error.

    With ``is_new``, rules that other programs do not have are checked too.

    >>> compile_schema("node Person { name: String @key }").node("Person").key_property
    'name'
    """
    source = as_source(source, SCHEMA_FILE)
    file, diagnostics = analyze_schema(source)
    if is_new:
        diagnostics = first_in_source([*diagnostics, *check_vectors(file, source).diagnostics])
    errors = [d for d in diagnostics if d.severity is Severity.ERROR]
    if errors:
        raise SchemaError(errors)
    return catalog_from_ir(build_ir(file))


def analyze_schema(source: Source) -> tuple[SchemaFile, list[Diagnostic]]:
    """The tree of a text and all its errors, in source order; never raises."""
    file, diagnostics = parse_schema(source)
    return file, first_in_source([*diagnostics, *check_schema(file, source)])
