"""The rules of annotations, on declarations and on properties.

Unknown annotations are accepted: they are stored and have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang.closest import did_you_mean
from omnigraph.lang.diagnostics import SchemaReport
from omnigraph.lang.schema.ast import Annotation, NodeDecl, PropertyDecl, TypeKind
from omnigraph.lang.types import PropType, Scalar

CONSTRAINT_ANNOTATIONS = ("key", "unique", "index")
METADATA = ("description", "instruction")

HIDDEN_COLUMNS = ("id", "src", "dst")
SYSTEM_COLUMNS = (
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
)

_ONCE = ("key", "unique", "index", "embed", "rename_from")
_FORBIDDEN = {
    "list": ("key", "unique", "index", "embed"),
    "vector": ("key", "unique"),
    "blob": ("key", "unique", "index", "embed"),
}


def check_type_annotations(
    report: SchemaReport, kind: TypeKind, name: str, annotations: tuple[Annotation, ...]
) -> None:
    """The annotations of a node or edge header."""
    for annotation in annotations:
        word = annotation.name
        if word not in CONSTRAINT_ANNOTATIONS and word != "embed":
            continue
        if kind is TypeKind.EDGE:
            report.parse(
                "S021", f"@{word} is not supported on edges (edge {name})", annotation.span
            )
        elif word != "embed":
            report.parse(
                "S020",
                f"@{word} is only supported on node properties or as body constraint (node {name})",
                annotation.span,
                f"write `@{word}(property)` inside the braces",
            )
        else:
            report.parse(
                "S020",
                f"@embed is only supported on node properties (node {name})",
                annotation.span,
            )
    _check_metadata(report, f"{kind} {name}", annotations)
    _check_once(report, f"{kind} {name}", annotations, ("rename_from",))
    _check_rename(report, f"{kind} {name}", annotations)


def check_property(
    report: SchemaReport,
    kind: TypeKind,
    owner: str,
    prop: PropertyDecl,
    by_name: dict[str, PropertyDecl],
    *,
    complete: bool,
    injected: NodeDecl | None = None,
) -> None:
    """The name and the annotations of one property.

    ``complete`` is whether ``by_name`` has all properties, so that an unknown name is an error.
    A property of an interface was checked there; only rules that depend on the other properties of
    the node are checked again.
    """
    where = f"{owner}.{prop.name}"
    if injected is None:
        _check_name(report, prop)
        for annotation in prop.annotations:
            _check_placement(report, kind, where, prop.type, annotation)
        _check_metadata(report, f"property {where}", prop.annotations)
        _check_once(report, f"property {where}", prop.annotations, _ONCE)
        _check_rename(report, f"property {where}", prop.annotations)
    if kind is not TypeKind.EDGE and prop.type.is_vector and not prop.type.is_list:
        for annotation in prop.annotations:
            if annotation.name == "embed":
                _check_embed(report, owner, where, annotation, by_name, complete, injected)


def _check_name(report: SchemaReport, prop: PropertyDecl) -> None:
    if prop.name in HIDDEN_COLUMNS:
        hint = f"every row has a hidden `{prop.name}` already; choose another name"
        if prop.name == "id":
            hint = "every row has a hidden `id` already, the text of its key; choose another name"
        report.parse("S050", f"property name '{prop.name}' is reserved", prop.name_span, hint)
    elif prop.name in SYSTEM_COLUMNS:
        hint = "the storage engine uses this name itself; choose another one"
        report.parse("S050", f"property name '{prop.name}' is reserved", prop.name_span, hint)


def _check_placement(
    report: SchemaReport, kind: TypeKind, where: str, prop_type: PropType, annotation: Annotation
) -> None:
    word = annotation.name
    if word == "instruction":
        report.parse(
            "S024",
            f"@instruction is only supported on node and edge types (property {where})",
            annotation.span,
            "use `@description` on properties",
        )
        return
    if kind is TypeKind.EDGE and word in ("key", "embed"):
        report.parse(
            "S026", f"@{word} is not supported on edge properties (edge {where})", annotation.span
        )
        return
    shape = prop_type.shape
    if shape is not None and word in _FORBIDDEN[shape]:
        report.parse(
            "S025", f"@{word} is not supported on {shape} property {where}", annotation.span
        )
    elif word == "embed" and shape is None:
        report.parse(
            "S029",
            f"@embed is only supported on vector properties ({where})",
            annotation.span,
            f"put it on the vector: `{where.partition('.')[2]}_vec: Vector(n) @embed(…)`",
        )


def _check_metadata(report: SchemaReport, where: str, annotations: Iterable[Annotation]) -> None:
    seen: set[str] = set()
    for annotation in annotations:
        word = annotation.name
        if word not in METADATA:
            continue
        if word in seen:
            report.parse("S022", f"{where} declares @{word} multiple times", annotation.span)
        elif not (annotation.value or "").strip():
            report.parse("S023", f"@{word} on {where} requires a non-empty value", annotation.span)
        seen.add(word)


def _check_once(
    report: SchemaReport, where: str, annotations: Iterable[Annotation], words: tuple[str, ...]
) -> None:
    seen: set[str] = set()
    for annotation in annotations:
        word = annotation.name
        if word in words and word in seen:
            report.parse("S027", f"{where} declares @{word} multiple times", annotation.span)
        seen.add(word)


def _check_rename(report: SchemaReport, where: str, annotations: Iterable[Annotation]) -> None:
    for annotation in annotations:
        if annotation.name == "rename_from" and not annotation.value:
            report.parse(
                "S028",
                f"@rename_from on {where} requires the previous name",
                annotation.span,
                'write `@rename_from("old_name")`',
            )


def _check_embed(
    report: SchemaReport,
    owner: str,
    where: str,
    annotation: Annotation,
    by_name: dict[str, PropertyDecl],
    complete: bool,
    injected: NodeDecl | None,
) -> None:
    source = annotation.value
    # An annotation of an interface is reported at the node in which it is invalid.
    span = injected.name_span if injected is not None else annotation.span
    if injected is None:
        if not source:
            report.parse(
                "S030",
                f"@embed on {where} requires a source property name",
                span,
                'write `@embed("text")`',
            )
        for key, _ in annotation.kwargs:
            if key != "model":
                report.parse(
                    "S033",
                    f"@embed on {where} has unknown argument '{key}=' (only 'model' is supported)",
                    span,
                )
    if not source:
        return
    prop = by_name.get(source)
    if prop is None:
        if complete:
            names = [name for name, p in by_name.items() if p.type.scalar is Scalar.STRING]
            report.parse(
                "S031",
                f"@embed on {where} references unknown source property {source}",
                span,
                did_you_mean(source, names),
            )
    elif prop.type.scalar is not Scalar.STRING or prop.type.is_list:
        report.parse(
            "S032", f"@embed source property {owner}.{source} must be String, got {prop.type}", span
        )
