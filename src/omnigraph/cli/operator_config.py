"""The operator's configuration: ``config.yaml`` in ``$OMNIGRAPH_HOME`` or ``~/.omnigraph``.

A key that is not known is a warning; a file that cannot be read as what it should be stops every
command that looks at it, before any graph is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.cli.output import terminal
from omnigraph.errors import InputError
from omnigraph.settings import Settings

TEXT_FORMATS = ("table", "kv", "csv", "jsonl", "json")
FORMATS = (*TEXT_FORMATS, "arrow", "parquet")
LAYOUTS = ("truncate", "wrap")
SCOPES = ("server", "cluster", "store")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What counts where a command says nothing."""

    output: str = "table"
    table_max_column_width: int = 80
    table_cell_layout: str = "truncate"
    server: str | None = None
    store: str | None = None
    default_graph: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A bundle of what to address."""

    name: str
    scopes: Mapping[str, str]
    default_graph: str | None = None

    @property
    def fault(self) -> str | None:
        """Why it cannot be used."""
        if not self.scopes:
            return "binds no scope"
        if len(self.scopes) > 1:
            return f"binds {len(self.scopes)} scopes ({', '.join(self.scopes)})"
        return None

    @property
    def binding(self) -> tuple[str, str]:
        """The kind of scope, and its target."""
        if self.fault is not None:
            raise InputError(
                f"profile '{self.name}' {self.fault}", hint="name one of server, cluster, store"
            )
        return next(iter(self.scopes.items()))


@dataclass(frozen=True, slots=True)
class Alias:
    """A stored query of a server, under a short name."""

    name: str
    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """All of the configuration."""

    actor: str | None = None
    defaults: Defaults = Defaults()
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)


def config_path() -> Path | None:
    directory = Settings.from_environ().operator_directory()
    return None if directory is None else Path(directory, "config.yaml")


def load_operator() -> Operator:
    """The configuration of this user; an empty one where there is no file."""
    path = config_path()
    if path is None:
        return Operator()
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Operator()
    except (OSError, UnicodeDecodeError) as error:
        reason = terminal.describe_os_error(error) if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"could not read operator config '{path}': {reason}") from None
    return parse_operator(text, str(path))


def parse_operator(text: str, path: str) -> Operator:
    """The configuration that a text spells.

    >>> parse_operator("operator: {actor: ana}", "config.yaml").actor
    'ana'
    """
    import yaml

    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise _broken(path, f"not YAML{where}") from None
    except (ValueError, RecursionError):
        # A date that is none, or brackets without end.
        raise _broken(path, "not YAML") from None
    return _Reader(path).operator({} if tree is None else tree)


def _broken(path: str, reason: str) -> InputError:
    return InputError(f"could not parse operator config '{path}': {reason}")


class _Reader:
    """Walks the tree, and says of each key that it does not know."""

    def __init__(self, path: str) -> None:
        self._path = path

    def operator(self, tree: Any) -> Operator:
        known = ("operator", "defaults", "servers", "clusters", "profiles", "aliases")
        top = self._table(tree, "", known)
        who = self._table(top.get("operator"), "operator", ("actor",))
        return Operator(
            self._actor(who),
            self._defaults(top.get("defaults")),
            self._named(top, "servers", ("url",), lambda n, t, p: self._needed(t, p, "url")),
            self._named(top, "clusters", ("root",), lambda n, t, p: self._needed(t, p, "root")),
            self._named(top, "profiles", (*SCOPES, "default_graph"), self._profile),
            self._named(
                top,
                "aliases",
                ("server", "graph", "query", "args", "params", "format"),
                self._alias,
            ),
        )

    def _defaults(self, tree: Any) -> Defaults:
        known = ("output", "table_max_column_width", "table_cell_layout")
        table = self._table(tree, "defaults", (*known, "server", "store", "default_graph"))
        width = table.get("table_max_column_width", 80)
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise _broken(self._path, "`defaults.table_max_column_width` must be a number above 0")
        found = Defaults(
            self._choice(table, "defaults", "output", TEXT_FORMATS) or "table",
            width,
            self._choice(table, "defaults", "table_cell_layout", LAYOUTS) or "truncate",
            self._text(table, "defaults", "server"),
            self._text(table, "defaults", "store"),
            self._text(table, "defaults", "default_graph"),
        )
        if found.server and found.store:
            raise InputError(
                f"operator config '{self._path}': `defaults` binds one entity, "
                "and it names a server and a store"
            )
        if found.store and found.default_graph:
            raise InputError(
                f"operator config '{self._path}': `defaults.store` is already a single graph, "
                "so `defaults.default_graph` cannot be combined with it"
            )
        return found

    def _profile(self, name: str, table: Mapping[str, Any], place: str) -> Profile:
        scopes = {kind: self._text(table, place, kind) for kind in SCOPES}
        return Profile(
            name,
            {kind: target for kind, target in scopes.items() if target},
            self._text(table, place, "default_graph"),
        )

    def _alias(self, name: str, table: Mapping[str, Any], place: str) -> Alias:
        args = table.get("args") or []
        if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
            raise _broken(self._path, f"`{place}.args` must be a list of names")
        params = table.get("params") or {}
        if not isinstance(params, dict):
            raise _broken(self._path, f"`{place}.params` must be a map")
        return Alias(
            name,
            self._needed(table, place, "server"),
            self._needed(table, place, "query"),
            self._text(table, place, "graph"),
            tuple(args),
            params,
            self._choice(table, place, "format", TEXT_FORMATS),
        )

    def _actor(self, table: Mapping[str, Any]) -> str | None:
        """Who writes, exactly as it is spelled."""
        from omnigraph.escaping import has_controls

        # Of the wrong kind it is refused as any text is; else nothing is trimmed.
        self._text(table, "operator", "actor")
        actor: str = table.get("actor") or ""
        if has_controls(actor):
            raise _broken(self._path, "`operator.actor` cannot hold control characters")
        return actor or None

    # -- values --------------------------------------------------------------------------

    def _named(
        self,
        top: Mapping[str, Any],
        key: str,
        known: tuple[str, ...],
        read: Callable[[str, Mapping[str, Any], str], Any],
    ) -> dict[str, Any]:
        tree = top.get(key) or {}
        if not isinstance(tree, dict):
            raise _broken(self._path, f"`{key}` must be a map")
        return {
            str(name): read(str(name), self._table(entry, f"{key}.{name}", known), f"{key}.{name}")
            for name, entry in tree.items()
        }

    def _table(self, tree: Any, place: str, known: tuple[str, ...]) -> dict[str, Any]:
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            raise _broken(self._path, f"{f'`{place}`' if place else 'the file'} must be a map")
        for key in tree:
            if key not in known:
                dotted = f"{place}.{key}" if place else str(key)
                terminal.warn(f"unknown key `{dotted}` (in {self._path}); ignored")
        return {str(key): value for key, value in tree.items()}

    def _text(self, table: Mapping[str, Any], place: str, key: str) -> str | None:
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise _broken(self._path, f"`{place}.{key}` must be a text")
        return value.strip() or None

    def _needed(self, table: Mapping[str, Any], place: str, key: str) -> str:
        found = self._text(table, place, key)
        if found is None:
            raise _broken(self._path, f"`{place}.{key}` is missing")
        return found

    def _choice(
        self, table: Mapping[str, Any], place: str, key: str, choices: tuple[str, ...]
    ) -> str | None:
        found = self._text(table, place, key)
        if found is not None and found not in choices:
            raise _broken(
                self._path, f"`{place}.{key}` is '{found}', not one of {', '.join(choices)}"
            )
        return found
