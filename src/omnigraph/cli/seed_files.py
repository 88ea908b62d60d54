"""Seed files for ``omnigraph embed``: the specification, the selection of rows, and the rows.

A seed file is JSONL as ``load`` reads it. This module uses neither a graph nor a provider: ``fill``
is given a function from texts to vectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, LoadError
from omnigraph.records import dataclass

Embed = Callable[[Sequence["EmbedText"]], Sequence[Sequence[float]]]

_BATCH_TEXTS = 64
_BATCH_ROWS = 10_000
"""At most this many rows are buffered behind one that waits for its vector."""


class EmbedMode(StrEnum):
    """How to treat rows that already have a vector."""

    FILL = "fill_missing"
    SELECTED = "reembed_selected"
    ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The text of one type: its source properties and the vector property."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeedSpec:
    """The vector dimension, and a recipe per type."""

    dimension: int
    types: Mapping[str, Recipe]


@dataclass(frozen=True, slots=True)
class Selector:
    """Matches rows with a property value, of one type or of all.

    >>> Selector.parse("Person:name=Ana: x").matches("Person", {"name": "Ana: x"})
    True
    """

    type_name: str | None
    field: str
    value: str

    @staticmethod
    def parse(text: str) -> Selector:
        left, sign, value = text.partition("=")
        type_name, colon, name = left.rpartition(":")
        if not sign or not name.strip() or (colon and not type_name.strip()):
            raise ValueError(text)
        return Selector(type_name.strip() or None, name.strip(), value)

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        if self.type_name not in (None, type_name) or self.field not in data:
            return False
        value = data[self.field]
        return (value if isinstance(value, str) else _compact(value)) == self.value


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows to process, and how."""

    mode: EmbedMode
    types: frozenset[str] = frozenset()
    selectors: tuple[Selector, ...] = ()

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        if self.types and type_name not in self.types:
            return False
        return not self.selectors or any(s.matches(type_name, data) for s in self.selectors)


@dataclass(frozen=True, slots=True)
class EmbedText:
    """A text to embed, and its line in the file."""

    line: int
    text: str


@dataclass(slots=True)
class SeedCounts:
    """The number of rows processed."""

    rows: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0


@dataclass(slots=True)
class _Row:
    """An output line; one that waits for a vector has a text."""

    line: str
    tree: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    text: EmbedText | None = None


# -- specifications -------------------------------------------------------------------------------


def read_spec(path: str) -> SeedSpec:
    """Read a specification from a JSON file."""
    from omnigraph.cli import files

    source = files.read_text(path)
    try:
        tree = json.loads(source.text)
    except (ValueError, RecursionError):
        raise InputError(f"{source.name}: not JSON") from None
    return parse_spec(tree, source.name)


def read_manifest(path: str) -> tuple[SeedSpec, str, str]:
    """Read a manifest: the specification, the seed file and the output file."""
    import yaml

    from omnigraph.cli import files

    source = files.read_source(path)
    try:
        tree = yaml.safe_load(source.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(f"{path}: not YAML") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a manifest must be a map")
    seed = _nested_text(tree, "sources", "raw_seed") or _nested_text(tree, "seed", "data")
    if not seed:
        raise InputError(f"{path}: `sources.raw_seed` is missing")
    output = _nested_text(tree, "artifacts", "embedded_seed") or "./build/seed.embedded.jsonl"
    if "embeddings" not in tree:
        raise InputError(f"{path}: `embeddings` is missing")
    folder = Path(path).parent
    return parse_spec(tree["embeddings"], path), str(folder / seed), str(folder / output)


def _nested_text(tree: Mapping[str, Any], table: str, key: str) -> str | None:
    inner = tree.get(table)
    value = inner.get(key) if isinstance(inner, dict) else None
    return value if isinstance(value, str) and value.strip() else None


def parse_spec(tree: Any, name: str) -> SeedSpec:
    """Build a specification from plain data.

    >>> parse_spec({"dimension": 4, "types": {"Doc": {"target": "v", "fields": ["title"]}}}, "s")
    SeedSpec(dimension=4, types={'Doc': Recipe(target='v', fields=('title',))})
    """
    if not isinstance(tree, dict) or not isinstance(tree.get("types"), dict):
        raise InputError(f"{name}: the embeddings need `dimension` and `types`")
    dimension = tree.get("dimension")
    if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
        raise InputError(f"{name}: `dimension` must be a whole number above 0")
    return SeedSpec(
        dimension,
        {
            str(type_name): _recipe(recipe, f"{name}: type {type_name}")
            for type_name, recipe in tree["types"].items()
        },
    )


def _recipe(tree: Any, name: str) -> Recipe:
    target = tree.get("target") if isinstance(tree, dict) else None
    fields = tree.get("fields") if isinstance(tree, dict) else None
    if not isinstance(target, str) or not target:
        raise InputError(f"{name}: `target` must name a property")
    if not isinstance(fields, list) or not fields or any(not isinstance(f, str) for f in fields):
        raise InputError(f"{name}: `fields` must be a list of properties")
    return Recipe(target, tuple(fields))


# -- rows -----------------------------------------------------------------------------------------


def fill(
    lines: Iterable[bytes],
    name: str,
    spec: SeedSpec,
    selection: RowSelection,
    embed: Embed,
    counts: SeedCounts,
) -> Iterator[str]:
    """Yield the output lines in order, and update ``counts``."""
    waiting: list[_Row] = []
    texts = 0
    for number, data in enumerate(lines, 1):
        if not data.strip():
            continue
        counts.rows += 1
        row = _process(data, number, name, spec, selection, counts)
        waiting.append(row)
        texts += row.text is not None
        if texts == 0 or texts >= _BATCH_TEXTS or len(waiting) >= _BATCH_ROWS:
            yield from _embed_rows(waiting, embed, counts)
            waiting, texts = [], 0
    yield from _embed_rows(waiting, embed, counts)


def _embed_rows(rows: Sequence[_Row], embed: Embed, counts: SeedCounts) -> Iterator[str]:
    texts = [row.text for row in rows if row.text is not None]
    vectors = iter(embed(texts) if texts else ())
    for row in rows:
        if row.text is not None:
            row.tree["data"][row.target] = list(next(vectors))
            row.line = _compact(row.tree)
            counts.embedded += 1
        yield row.line


def _process(
    data: bytes, number: int, name: str, spec: SeedSpec, selection: RowSelection, counts: SeedCounts
) -> _Row:
    line, tree = _parse_row(data, number, name)
    type_name = tree.get("type")
    if not isinstance(type_name, str):
        return _Row(line)
    inner = tree.get("data")
    if not isinstance(inner, dict):
        raise _row_error(name, number, f"a row of type '{type_name}' needs an object `data`")
    recipe = spec.types.get(type_name)
    if recipe is None or not selection.matches(type_name, inner):
        return _Row(line)
    counts.selected += 1
    is_missing = inner.get(recipe.target) in (None, [])
    if selection.mode is EmbedMode.CLEAN:
        if recipe.target not in inner:
            return _Row(line)
        del inner[recipe.target]
        counts.cleaned += 1
        return _Row(_compact(tree))
    if selection.mode is EmbedMode.FILL and not is_missing:
        return _Row(line)
    return _Row(
        line, tree, recipe.target, EmbedText(number, embedding_text(type_name, inner, recipe))
    )


def _parse_row(data: bytes, number: int, name: str) -> tuple[str, dict[str, Any]]:
    try:
        line = data.decode("utf-8").strip()
        tree = json.loads(line, parse_constant=_reject_constant, parse_float=_parse_finite)
    except UnicodeDecodeError:
        raise _row_error(name, number, "not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise _row_error(name, number, "not JSON") from None
    if not isinstance(tree, dict):
        raise _row_error(name, number, "a row must be a JSON object")
    return line, tree


def embedding_text(type_name: str, data: Mapping[str, Any], recipe: Recipe) -> str:
    """The text sent to the provider for a row.

    >>> row = {"title": " Tea ", "tags": ["hot", "green"], "year": 1999, "note": None}
    >>> print(embedding_text("Doc", row, Recipe("v", ("title", "note", "tags", "year"))))
    type: Doc
    title: Tea
    tags: hot, green
    year: 1999
    """
    lines = [f"type: {type_name}"]
    for name in recipe.fields:
        value = _value_text(data.get(name))
        if value:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _value_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(filter(None, map(_value_text, value)))
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _reject_constant(word: str) -> None:
    raise ValueError(word)


def _parse_finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        # JSON cannot represent it.
        raise ValueError(text)
    return value


def _row_error(name: str, number: int, problem: str) -> LoadError:
    return LoadError(f"{name}, line {number}: {problem}", details={"file": name, "line": number})
