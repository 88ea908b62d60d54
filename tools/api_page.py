"""Writes docs/api.md from the signatures and docstrings of the public surface.

Usage: python tools/api_page.py > docs/api.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph import argument_checks
from omnigraph.api import arguments
from omnigraph.errors import OmniGraphError
from omnigraph.lang import parsing

INTRO = """\
# The Python API

Every public name of `omnigraph`, from its signature and docstring; written by `make docs`. All of
it is typed: `mypy --strict` and editors see the same. The examples run as tests, on a small graph:

```text
node Person { name: String @key  age: I32?  photo: Blob? }      Ada (36), Grace (37)
edge Knows: Person -> Person                                    Ada knows Grace
```

`graph` is open, its newest commit has the tag `v1`, `older` is a stored query, `result` has the
names and ages of both, and `folder` is an empty directory.

Three rules hold everywhere. `branch` is `"main"` unless you name another. `actor=None` is the actor
the graph was opened with. `None` means *not given*: no limit, no restriction, the default.
"""

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Graph", ("Graph",)),
    ("Snapshots", ("GraphSnapshot", "Neighbour", "BlobInfo", "ReadOnlyDataset")),
    ("Results", ("PreparedRead", "PreparedMutation", "Result", "Explanation", "Cancel")),
    ("Stored queries", ("GraphStoredQueries", "StoredQuery")),
    ("Branches and tags", ("GraphBranches", "GraphTags", "Commit", "Tag")),
    ("Writes", ("Receipt", "LoadReceipt", "LoadMode", "TableCounts", "Durability", "Recovered")),
    ("Merges", ("MergeReport", "Conflicts", "RowConflict", "ConflictKind")),
    (
        "Changes",
        ("GraphChanges", "Diff", "Change", "ChangePage", "ChangeBlock", "Baseline", "Blame"),
    ),
    ("Schema", ("GraphSchema", "Catalog", "MigrationPlan", "SchemaApplied")),
    ("Indexes", ("GraphIndexes", "IndexReport", "IndexState")),
    ("Maintenance", ("GraphMaintenance", "verify_graph", "MaintenancePolicy")),
    ("Backups", ("restore", "clone", "backup_points", "prune_backup")),
    ("Embeddings", ("GraphEmbeddings", "EmbeddingConfig", "RateLimit", "Batching")),
    ("Progress", ("Progress",)),
    ("Languages", ("compile_schema", "compile_query", "Source", "Span", "Diagnostic", "Severity")),
)
"""The subjects of the page; names that are not listed follow under their own heading."""

_ALIASES = ("Location", "SchemaSource", "QuerySource", "Params", "TypesByFile")
_ALIASES += ("Actor", "Label", "Natural", "Positive", "Rate", "SourceText")


def page() -> str:
    """The whole page."""
    listed = {name for _, names in SECTIONS for name in names}
    rest = tuple(
        name
        for name in omnigraph.__all__
        if name not in listed and not name.startswith("__") and not _is_error(name)
    )
    parts = [INTRO, _aliases()]
    for title, names in (*SECTIONS, ("Further types", rest)):
        parts.append(f"## {title}\n")
        parts += [_entry(name) for name in names]
    parts.append(
        "## Errors\n\nEvery error is an `OmniGraphError` with `code`, `message`, `hint`, `details`"
        "\nand `retryable`; [errors.md](errors.md) has all of them, by their codes.\n"
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _is_error(name: str) -> bool:
    value = getattr(omnigraph, name)
    return inspect.isclass(value) and issubclass(value, OmniGraphError)


def _aliases() -> str:
    texts: dict[str, str] = {}
    for module in (argument_checks, arguments, parsing):
        texts |= _attribute_texts(Path(inspect.getfile(module)).read_text("utf-8"), None)
    rows = "".join(f"| `{name}` | {_line(texts[name])} |\n" for name in _ALIASES)
    spark = "| `Engine` | `auto`, `local` or `spark`. |\n"
    spark += "| `SparkLike` | A `SparkSession`, a `SparkConfig` or `None`. |\n"
    return f"| In signatures | Is |\n|---|---|\n{rows}{spark}"


def _entry(name: str) -> str:
    value = getattr(omnigraph, name)
    if inspect.isclass(value):
        return _class(name, value)
    if inspect.isfunction(value):
        return _function(name, value, 3)
    return f"### `{name}`\n\nA type alias: `{_plain(str(value))}`.\n"


def _class(name: str, cls: type) -> str:
    parts = [f"### `{name}`\n", _text(cls.__doc__ if _has_text(cls) else "")]
    if issubclass(cls, Enum):
        values = ", ".join(f"`{member.value}`" for member in cls)
        return "\n".join([*parts, f"One of {values}.\n"])
    rows = list(_attributes(cls))
    if rows:
        parts.append(f"| Attribute | Type | |\n|---|---|---|\n{''.join(rows)}")
    parts += [_function(f"{name}.{member}", raw, 4) for member, raw in _methods(cls)]
    return "\n".join(parts)


def _has_text(cls: type) -> bool:
    """A dataclass without a docstring gets its signature for one."""
    return bool(cls.__doc__) and not cls.__doc__.startswith(f"{cls.__name__}(")


def _attributes(cls: type) -> Iterator[str]:
    texts = _attribute_texts(inspect.getsource(cls), cls.__name__)
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if not field.name.startswith("_"):
                yield _row(field.name, str(field.type), texts.get(field.name, ""))
    for name, raw in members(cls).items():
        if isinstance(raw, property) and not name.startswith("_"):
            hint = raw.fget.__annotations__.get("return", "") if raw.fget else ""
            yield _row(name, str(hint), inspect.cleandoc(raw.__doc__ or "").split("\n\n")[0])


def members(cls: type) -> dict[str, Any]:
    """What a class has, also from classes of ours that it extends; its own come first."""
    inherited = [base for base in cls.__mro__ if base.__module__.startswith("omnigraph")]
    actual: dict[str, Any] = {}
    for base in inherited:
        actual = {**actual, **{k: v for k, v in vars(base).items() if k not in actual}}
    return actual


def _row(name: str, hint: str, text: str) -> str:
    escaped = _plain(hint).replace("|", "\\|")
    return f"| `{name}` | `{escaped}` | {_line(text)} |\n"


def _attribute_texts(source: str, name: str | None) -> dict[str, str]:
    """The strings that follow assignments, of a module or of a class."""
    tree = ast.parse(textwrap.dedent(source))
    body = tree.body
    if name is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == name).body
    texts = {}
    for before, after in pairwise(body):
        if isinstance(before, ast.Assign):
            target: Any = before.targets[0]
        elif isinstance(before, ast.AnnAssign):
            target = before.target
        else:
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[target.id] = inspect.cleandoc(str(after.value.value))
    return texts


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    if cls is omnigraph.ReadOnlyDataset:
        return  # those of Lance
    for name, raw in members(cls).items():
        if isinstance(raw, classmethod | staticmethod):
            raw = raw.__func__
        if inspect.isfunction(raw) and (name == "__call__" or not name.startswith("_")):
            yield name, raw


def _function(name: str, function: Any, level: int) -> str:
    text = inspect.cleandoc(function.__doc__ or "")
    example = re.search(r"(?m)^>>> [\s\S]*", text)
    text = text[: example.start()] if example else text
    text, _, raises = text.partition("Raises:\n")
    parts = [
        f"{'#' * level} `{name}`\n",
        f"```text\n{_signature(name, function)}\n```\n",
        _text(text),
    ]
    if raises:
        rows = [line.strip().split(": ", 1) for line in raises.strip().splitlines()]
        listed = "\n".join(f"- `{error}`: {_line(why)}" for error, why in rows)
        parts.append(f"Raises:\n\n{listed}\n")
    if example:
        parts.append(f"```pycon\n{example[0].strip()}\n```\n")
    return "\n".join(parts)


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    shown = [
        str(parameter.replace(annotation=_Shown(parameter.annotation), default=_shown(parameter)))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    kinds = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    first = next((i for i, p in enumerate(kinds) if p.kind is p.KEYWORD_ONLY), None)
    if first is not None and not any(p.kind is p.VAR_POSITIONAL for p in kinds):
        shown.insert(first, "*")
    result = f" -> {_plain(str(signature.return_annotation))}"
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {item},\n" for item in shown) + f"){result}"


class _Shown:
    """An annotation, or a default, as the page spells it."""

    def __init__(self, text: object) -> None:
        self.text = _plain(str(text))

    def __repr__(self) -> str:
        return self.text


def _shown(parameter: inspect.Parameter) -> Any:
    default = parameter.default
    if default is parameter.empty or isinstance(default, str | int | float | None):
        if isinstance(default, Enum):
            return _Shown(repr(default.value))
        return default
    return _Shown(repr(default))


def _plain(hint: str) -> str:
    hint = re.sub(r"\bomnigraph\.(\w+\.)*", "", hint)
    return hint.replace("pa.", "pyarrow.").replace("pc.", "pyarrow.compute.").replace("typing.", "")


def _text(text: str | None) -> str:
    body = inspect.cleandoc(text or "")
    body = re.sub(r"(?ms)^>>> .*", "", body)
    body = re.sub(r"(?m)^( +)", "", body)
    return body.replace("``", "`").strip() + "\n"


def _line(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


if __name__ == "__main__":
    print(page(), end="")
