"""The ``@embed`` properties of a schema, and the selection of some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omnigraph.embed.providers.choice import refuse_other_model
from omnigraph.embed.providers.embedder import Embedder
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class EmbedTarget:
    """A vector property and its text property. Can be sent to other processes."""

    type_name: str
    table_key: str
    name: str
    source: str
    dimension: int
    model: str | None = None

    @property
    def label(self) -> str:
        return f"{self.type_name}.{self.name}"


def all_targets(catalog: Catalog) -> list[EmbedTarget]:
    return [
        EmbedTarget(
            node_type.name,
            node_type.table_key,
            name,
            embed.source,
            node_type.properties[name].type.dimension or 0,
            embed.model,
        )
        for _, node_type in sorted(catalog.node_types.items())
        for name, embed in sorted(node_type.embeds.items())
    ]


def select_targets(
    catalog: Catalog, types: Iterable[str] | None, properties: Iterable[str] | None
) -> list[EmbedTarget]:
    """The targets of some types, or of some properties as ``Type.property``; by default all."""
    targets = all_targets(catalog)
    if types is None and properties is None:
        return targets
    type_names, labels = set(types or ()), set(properties or ())
    for name in sorted(type_names - {target.type_name for target in targets}):
        raise InputError(f"the type '{name}' has no property with @embed", hint=_hint(targets))
    for name in sorted(labels - {target.label for target in targets}):
        raise InputError(f"'{name}' is not an @embed property", hint=_hint(targets))
    return [t for t in targets if t.type_name in type_names or t.label in labels]


def _hint(targets: Sequence[EmbedTarget]) -> str:
    if not targets:
        return "the schema has no @embed"
    return f"the @embed properties are {', '.join(target.label for target in targets)}"


def refuse_other_models(targets: Iterable[EmbedTarget], embedder: Embedder) -> None:
    for target in targets:
        refuse_other_model(target.label, target.model, embedder)


def by_table(targets: Iterable[EmbedTarget]) -> Mapping[str, tuple[EmbedTarget, ...]]:
    """The targets by table key, sorted."""
    tables: dict[str, tuple[EmbedTarget, ...]] = {}
    for target in targets:
        tables[target.table_key] = (*tables.get(target.table_key, ()), target)
    return dict(sorted(tables.items()))
