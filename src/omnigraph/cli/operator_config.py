"""The operator's configuration: ``config.yaml`` in ``$OMNIGRAPH_HOME`` or ``~/.omnigraph``.

An unknown key is a warning; an invalid file fails every command that reads it, before any graph is
touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from omnigraph.cli.output import terminal
from omnigraph.errors import InputError
from omnigraph.records import dataclass
from omnigraph.settings import Settings

TEXT_FORMATS = ("table", "kv", "csv", "jsonl", "json")
FORMATS = (*TEXT_FORMATS, "arrow", "parquet")
LAYOUTS = ("truncate", "wrap")
SCOPES = ("server", "cluster", "store")


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for options that a command line omits."""

    output: str = "table"
    table_max_column_width: int = 80
    table_cell_layout: str = "truncate"
    server: str | None = None
    store: str | None = None
    default_graph: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A named scope."""

    name: str
    scopes: Mapping[str, str]
    default_graph: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the profile is invalid; ``None`` if it is valid."""
        if not self.scopes:
            return "binds no scope"
        if len(self.scopes) > 1:
            return f"binds {len(self.scopes)} scopes ({', '.join(self.scopes)})"
        return None

    @property
    def binding(self) -> tuple[str, str]:
        """The scope kind and its target."""
        if self.fault is not None:
            raise InputError(
                f"profile '{self.name}' {self.fault}", hint="name one of server, cluster, store"
            )
        return next(iter(self.scopes.items()))


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name for a stored query of a server."""

    name: str
    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The whole configuration."""

    actor: str | None = None
    defaults: Defaults = Defaults()
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)


def config_path() -> Path | None:
    directory = Settings.from_environ().operator_directory()
    return None if directory is None else Path(directory, "config.yaml")


def load_operator_config() -> OperatorConfig:
    """Load the configuration of this user; empty if there is no file."""
    path = config_path()
    if path is None:
        return OperatorConfig()
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return OperatorConfig()
    except (OSError, UnicodeDecodeError) as error:
        reason = terminal.describe_os_error(error) if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"could not read operator config '{path}': {reason}") from None
    return parse_operator_config(text, str(path))


def parse_operator_config(text: str, path: str) -> OperatorConfig:
    """Parse a configuration file.

    >>> parse_operator_config("operator: {actor: ana}", "config.yaml").actor
    'ana'
    """
    import yaml

    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise _invalid(path, f"not YAML{where}") from None
    except (ValueError, RecursionError):
        # An invalid date, or too deeply nested brackets.
        raise _invalid(path, "not YAML") from None
    return _ConfigReader(path).operator({} if tree is None else tree)


def _invalid(path: str, reason: str) -> InputError:
    return InputError(f"could not parse operator config '{path}': {reason}")


class _ConfigReader:
    """Converts the YAML tree and warns about unknown keys."""

    def __init__(self, path: str) -> None:
        self._path = path

    def operator(self, tree: Any) -> OperatorConfig:
        keys = ("operator", "defaults", "servers", "clusters", "profiles", "aliases")
        top = self._table(tree, "", keys)
        return OperatorConfig(
            self._actor(self._table(top.get("operator"), "operator", ("actor",))),
            self._defaults(top.get("defaults")),
            self._named(top, "servers", ("url",), lambda n, t, p: self._required(t, p, "url")),
            self._named(top, "clusters", ("root",), lambda n, t, p: self._required(t, p, "root")),
            self._named(top, "profiles", (*SCOPES, "default_graph"), self._profile),
            self._named(
                top,
                "aliases",
                ("server", "graph", "query", "args", "params", "format"),
                self._alias,
            ),
        )

    def _defaults(self, tree: Any) -> Defaults:
        table = self._table(tree, "defaults", tuple(key.name for key in fields(Defaults)))
        width = table.get("table_max_column_width", 80)
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise _invalid(self._path, "`defaults.table_max_column_width` must be a number above 0")
        defaults = Defaults(
            self._text(table, "defaults", "output", TEXT_FORMATS) or "table",
            width,
            self._text(table, "defaults", "table_cell_layout", LAYOUTS) or "truncate",
            self._text(table, "defaults", "server"),
            self._text(table, "defaults", "store"),
            self._text(table, "defaults", "default_graph"),
        )
        if defaults.server and defaults.store:
            raise InputError(
                f"operator config '{self._path}': `defaults` binds one entity, "
                "and it names a server and a store"
            )
        if defaults.store and defaults.default_graph:
            raise InputError(
                f"operator config '{self._path}': `defaults.store` is already a single graph, "
                "so `defaults.default_graph` cannot be combined with it"
            )
        return defaults

    def _profile(self, name: str, table: Mapping[str, Any], path: str) -> Profile:
        scopes = {kind: self._text(table, path, kind) for kind in SCOPES}
        return Profile(
            name,
            {kind: target for kind, target in scopes.items() if target},
            self._text(table, path, "default_graph"),
        )

    def _alias(self, name: str, table: Mapping[str, Any], path: str) -> Alias:
        args = table.get("args") or []
        if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
            raise _invalid(self._path, f"`{path}.args` must be a list of names")
        params = table.get("params") or {}
        if not isinstance(params, dict):
            raise _invalid(self._path, f"`{path}.params` must be a map")
        return Alias(
            name,
            self._required(table, path, "server"),
            self._required(table, path, "query"),
            self._text(table, path, "graph"),
            tuple(args),
            params,
            self._text(table, path, "format", TEXT_FORMATS),
        )

    def _actor(self, table: Mapping[str, Any]) -> str | None:
        """The actor, verbatim."""
        from omnigraph.escaping import has_controls

        # Checks that it is a text; the value itself is not trimmed.
        self._text(table, "operator", "actor")
        actor: str = table.get("actor") or ""
        if has_controls(actor):
            raise _invalid(self._path, "`operator.actor` cannot hold control characters")
        return actor or None

    # -- values --------------------------------------------------------------------------

    def _named(
        self,
        top: Mapping[str, Any],
        key: str,
        keys: tuple[str, ...],
        read: Callable[[str, Mapping[str, Any], str], Any],
    ) -> dict[str, Any]:
        tree = top.get(key) or {}
        if not isinstance(tree, dict):
            raise _invalid(self._path, f"`{key}` must be a map")
        return {
            str(name): read(str(name), self._table(entry, f"{key}.{name}", keys), f"{key}.{name}")
            for name, entry in tree.items()
        }

    def _table(self, tree: Any, path: str, keys: tuple[str, ...]) -> dict[str, Any]:
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            raise _invalid(self._path, f"{f'`{path}`' if path else 'the file'} must be a map")
        for key in tree:
            if key not in keys:
                dotted = f"{path}.{key}" if path else str(key)
                terminal.warn(f"unknown key `{dotted}` (in {self._path}); ignored")
        return {str(key): value for key, value in tree.items()}

    def _text(
        self, table: Mapping[str, Any], path: str, key: str, choices: Sequence[str] = ()
    ) -> str | None:
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise _invalid(self._path, f"`{path}.{key}` must be a string")
        text = value.strip() or None
        if text and choices and text not in choices:
            raise _invalid(
                self._path, f"`{path}.{key}` is '{text}', not one of {', '.join(choices)}"
            )
        return text

    def _required(self, table: Mapping[str, Any], path: str, key: str) -> str:
        text = self._text(table, path, key)
        if text is None:
            raise _invalid(self._path, f"`{path}.{key}` is missing")
        return text
