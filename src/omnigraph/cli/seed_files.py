"""Seed files whose rows get vectors: what is to be embedded, which rows, and the rows themselves.

A seed file is JSONL as ``load`` reads it. Nothing here knows a graph, and nothing asks a provider:
``fill`` is handed a function that makes vectors of texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, LoadError

Embed = Callable[[Sequence["Wanted"]], Sequence[Sequence[float]]]

_TEXTS_AT_ONCE = 64
_ROWS_AT_ONCE = 10_000
"""Rows that wait for those before them; more are not held."""


class Mode(StrEnum):
    """What happens to rows that have a vector already."""

    FILL = "fill_missing"
    SELECTED = "reembed_selected"
    ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The text of one type: which properties, and where its vector goes."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeedSpec:
    """What is embedded: the size of the vectors, and a recipe for each type."""

    dimension: int
    types: Mapping[str, Recipe]


@dataclass(frozen=True, slots=True)
class Selector:
    """Rows that have a value, of one type or of all.

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
        found = data[self.field]
        return (found if isinstance(found, str) else _compact(found)) == self.value


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows are worked on, and how."""

    mode: Mode
    types: frozenset[str] = frozenset()
    selectors: tuple[Selector, ...] = ()

    def takes(self, type_name: str, data: Mapping[str, Any]) -> bool:
        if self.types and type_name not in self.types:
            return False
        return not self.selectors or any(s.matches(type_name, data) for s in self.selectors)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that is to get a vector, and the line it comes from."""

    line: int
    text: str


@dataclass(slots=True)
class Counts:
    """What became of the rows."""

    rows: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0


@dataclass(slots=True)
class _Row:
    """A line on its way out; one that waits for a vector has a text."""

    line: str
    tree: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    wanted: Wanted | None = None


# -- specifications -------------------------------------------------------------------------------


def read_spec(path: str) -> SeedSpec:
    """The specification in a JSON file."""
    from omnigraph.cli import files

    source = files.read_text(path)
    try:
        tree = json.loads(source.text)
    except (ValueError, RecursionError):
        raise InputError(f"{source.name}: not JSON") from None
    return spec_of(tree, source.name)


def read_manifest(path: str) -> tuple[SeedSpec, str, str]:
    """A manifest: the specification, the seed file and where the filled one goes."""
    import yaml

    from omnigraph.cli import files

    source = files.read_source(path)
    try:
        tree = yaml.safe_load(source.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(f"{path}: not YAML") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a manifest is a map")
    seed = _inside(tree, "sources", "raw_seed") or _inside(tree, "seed", "data")
    if not seed:
        raise InputError(f"{path}: `sources.raw_seed` is missing")
    made = _inside(tree, "artifacts", "embedded_seed") or "./build/seed.embedded.jsonl"
    if "embeddings" not in tree:
        raise InputError(f"{path}: `embeddings` is missing")
    folder = Path(path).parent
    return spec_of(tree["embeddings"], path), str(folder / seed), str(folder / made)


def _inside(tree: Mapping[str, Any], table: str, key: str) -> str | None:
    inner = tree.get(table)
    found = inner.get(key) if isinstance(inner, dict) else None
    return found if isinstance(found, str) and found.strip() else None


def spec_of(tree: Any, name: str) -> SeedSpec:
    """A specification as plain data.

    >>> spec_of({"dimension": 4, "types": {"Doc": {"target": "v", "fields": ["title"]}}}, "s")
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
            str(each): _recipe(recipe, f"{name}: type {each}")
            for each, recipe in tree["types"].items()
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
    lines: Iterable[bytes], name: str, spec: SeedSpec, choice: Choice, embed: Embed, counts: Counts
) -> Iterator[str]:
    """The lines of the filled file, in their order; ``counts`` is kept while they come."""
    waiting: list[_Row] = []
    texts = 0
    for number, data in enumerate(lines, 1):
        if not data.strip():
            continue
        counts.rows += 1
        row = _worked(data, number, name, spec, choice, counts)
        waiting.append(row)
        texts += row.wanted is not None
        if texts == 0 or texts >= _TEXTS_AT_ONCE or len(waiting) >= _ROWS_AT_ONCE:
            yield from _finished(waiting, embed, counts)
            waiting, texts = [], 0
    yield from _finished(waiting, embed, counts)


def _finished(rows: Sequence[_Row], embed: Embed, counts: Counts) -> Iterator[str]:
    wanted = [row.wanted for row in rows if row.wanted is not None]
    vectors = iter(embed(wanted) if wanted else ())
    for row in rows:
        if row.wanted is not None:
            row.tree["data"][row.target] = list(next(vectors))
            row.line = _compact(row.tree)
            counts.embedded += 1
        yield row.line


def _worked(
    data: bytes, number: int, name: str, spec: SeedSpec, choice: Choice, counts: Counts
) -> _Row:
    line, tree = _parsed(data, number, name)
    type_name = tree.get("type")
    if not isinstance(type_name, str):
        return _Row(line)
    inner = tree.get("data")
    if not isinstance(inner, dict):
        raise _wrong(name, number, f"a row of type '{type_name}' needs an object `data`")
    recipe = spec.types.get(type_name)
    if recipe is None or not choice.takes(type_name, inner):
        return _Row(line)
    counts.selected += 1
    is_missing = inner.get(recipe.target) in (None, [])
    if choice.mode is Mode.CLEAN:
        if recipe.target not in inner:
            return _Row(line)
        del inner[recipe.target]
        counts.cleaned += 1
        return _Row(_compact(tree))
    if choice.mode is Mode.FILL and not is_missing:
        return _Row(line)
    return _Row(line, tree, recipe.target, Wanted(number, text_of(type_name, inner, recipe)))


def _parsed(data: bytes, number: int, name: str) -> tuple[str, dict[str, Any]]:
    try:
        line = data.decode("utf-8").strip()
        tree = json.loads(line, parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError:
        raise _wrong(name, number, "not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise _wrong(name, number, "not JSON") from None
    if not isinstance(tree, dict):
        raise _wrong(name, number, "a row is a JSON object")
    return line, tree


def text_of(type_name: str, data: Mapping[str, Any], recipe: Recipe) -> str:
    """What the provider gets for a row.

    >>> row = {"title": " Tea ", "tags": ["hot", "green"], "year": 1999, "note": None}
    >>> print(text_of("Doc", row, Recipe("v", ("title", "note", "tags", "year"))))
    type: Doc
    title: Tea
    tags: hot, green
    year: 1999
    """
    lines = [f"type: {type_name}"]
    for name in recipe.fields:
        value = _words(data.get(name))
        if value:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(filter(None, map(_words, value)))
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refuse(word: str) -> None:
    raise ValueError(word)


def _finite(text: str) -> float:
    found = float(text)
    if found in (float("inf"), float("-inf")):
        # It could not be written again.
        raise ValueError(text)
    return found


def _wrong(name: str, number: int, problem: str) -> LoadError:
    return LoadError(f"{name}, line {number}: {problem}", details={"file": name, "line": number})
