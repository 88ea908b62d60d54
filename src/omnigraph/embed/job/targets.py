"""Which vectors of a schema are made from texts, and which of them are meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from omnigraph.embed.providers.choice import refuse_other_model
from omnigraph.embed.providers.embedder import Embedder
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Target:
    """A vector property and the text that it is made from. Made to be sent to other processes."""

    type_name: str
    table_key: str
    name: str
    source: str
    dimension: int
    model: str | None = None

    @property
    def label(self) -> str:
        return f"{self.type_name}.{self.name}"


def all_targets(catalog: Catalog) -> list[Target]:
    """Every property with ``@embed``, in the order of their names."""
    return [
        Target(
            kind.name,
            kind.table_key,
            name,
            embed.source,
            kind.properties[name].type.dimension or 0,
            embed.model,
        )
        for _, kind in sorted(catalog.node_types.items())
        for name, embed in sorted(kind.embeds.items())
    ]


def chosen_targets(
    catalog: Catalog, types: Iterable[str] | None, properties: Iterable[str] | None
) -> list[Target]:
    """Those of some types, or of some properties named as ``Type.property``; else all."""
    known = all_targets(catalog)
    if types is None and properties is None:
        return known
    wanted_types, wanted = set(types or ()), set(properties or ())
    for name in sorted(wanted_types - {each.type_name for each in known}):
        raise InputError(f"the type '{name}' has no property with @embed", hint=_hint(known))
    for name in sorted(wanted - {each.label for each in known}):
        raise InputError(f"'{name}' is no property with @embed", hint=_hint(known))
    return [each for each in known if each.type_name in wanted_types or each.label in wanted]


def _hint(known: Sequence[Target]) -> str:
    if not known:
        return "the schema has no @embed"
    return f"there are {', '.join(each.label for each in known)}"


def refuse_other_models(targets: Iterable[Target], embedder: Embedder) -> None:
    for target in targets:
        refuse_other_model(target.label, target.model, embedder)


def by_table(targets: Iterable[Target]) -> Mapping[str, tuple[Target, ...]]:
    """The properties of each table together, in the order of the tables."""
    found: dict[str, tuple[Target, ...]] = {}
    for target in targets:
        found[target.table_key] = (*found.get(target.table_key, ()), target)
    return dict(sorted(found.items()))
