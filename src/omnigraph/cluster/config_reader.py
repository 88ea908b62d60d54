"""Reads ``cluster.yaml``: every problem with its line and its field, all at once.

Only the file itself is read here. What the files that it names contain is checked in ``desired``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from omnigraph.cluster.bundle import CONFIG, ConfigBundle, DirectoryBundle, FileUnreadable
from omnigraph.cluster.config import (
    CONFIG_VERSION,
    ClusterConfig,
    GraphConfig,
    PolicyConfig,
    QuerySource,
)
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.graph_ids import is_graph_id
from omnigraph.cluster.ledger import EmbeddingProfile
from omnigraph.cluster.resources import CLUSTER, PROVIDER, is_name, key_variable, normal_bindings
from omnigraph.escaping import escape
from omnigraph.yaml_tree import YamlProblem, YamlValue, parse_yaml

RESERVED_KEYS = ("apply", "env_file", "pipelines", "embeddings", "ui", "aliases", "bindings")
PROVIDER_KINDS = ("openai-compatible", "openai", "gemini", "mock")
LARGEST = 16 << 20
"""The characters of a configuration, at most: that is 150,000 graphs with a query and a policy."""
_KEYS = ("version", "metadata", "storage", "state", "providers", "graphs", "policies")


def read_config(bundle: ConfigBundle, log: DiagnosticLog) -> ClusterConfig | None:
    """The configuration of a bundle; ``None`` if the file cannot be used at all."""
    if isinstance(bundle, DirectoryBundle) and not bundle.exists:
        log.error("config_dir_not_found", bundle.name, "there is no such directory")
        return None
    try:
        text = bundle.read(CONFIG).decode("utf-8")
    except FileUnreadable as problem:
        log.error("cluster_config_read_error", CONFIG, f"cannot read the file: {problem.reason}")
        return None
    except UnicodeDecodeError as error:
        message = _at(line_of(error), "the file is not UTF-8 text")
        log.error("cluster_config_read_error", CONFIG, message)
        return None
    try:
        tree = parse_yaml(text, LARGEST)
        if not tree.is_null and tree.node.id != "mapping":
            raise YamlProblem("the file must be a map of keys", tree.line)
    except YamlProblem as problem:
        log.error("invalid_cluster_yaml", CONFIG, _at(problem.line, problem.message))
        return None
    before = len(log.entries)
    _note_duplicates(tree, log)
    for key, line, _ in _pairs(tree):
        if key in RESERVED_KEYS:
            log.error("future_phase_field", key, _at(line, f"'{key}' is reserved for later"))
    if len(log.entries) > before:
        return None
    return _ClusterYamlReader(log).read(tree)


def read_header(bundle: ConfigBundle, log: DiagnosticLog) -> ClusterConfig | None:
    """The configuration for a command that needs only its storage: other problems do not count."""
    findings = DiagnosticLog()
    config = read_config(bundle, findings)
    header = ("version", "metadata", "storage", "state", CONFIG)
    relevant = [
        entry
        for entry in findings.entries
        if config is None or entry.path.partition(".")[0] in header or entry.path == CONFIG
    ]
    log.add(relevant)
    return config


# -- the tree ------------------------------------------------------------------------------------


def _at(line: int, message: str) -> str:
    return f"{CONFIG}:{line}: {message}"


def line_of(error: UnicodeDecodeError) -> int:
    """The line of the first bytes that are not text."""
    return error.object.count(b"\n", 0, error.start) + 1


def _lines(tree: YamlValue) -> dict[str, int]:
    """The line of each key and item, by the path to it; of an anchor, those of its first use."""
    lines: dict[str, int] = {}
    visited: set[int] = set()
    pending = [tree]
    while pending:
        value = pending.pop()
        if value.node is None or id(value.node) in visited:
            continue
        visited.add(id(value.node))
        for _, line, child in _pairs(value):
            lines[child.path] = line
            pending.append(child)
        for child in value.items() if value.is_list else ():
            lines[child.path] = child.line
            pending.append(child)
    return lines


def _pairs(value: YamlValue) -> Iterator[tuple[str, int, YamlValue]]:
    """The entries of a mapping: key, the line of the key, value."""
    if value.is_null or value.node.id != "mapping":
        return
    for key, child in value.node.value:
        name = str(key.value) if key.id == "scalar" else "?"
        dotted = f"{value.path}.{name}" if value.path else name
        line = key.start_mark.line + 1
        yield name, line, YamlValue(child, dotted, child.start_mark.line + 1)


def _note_duplicates(tree: YamlValue, log: DiagnosticLog) -> None:
    """Repeated keys of every mapping, in block or flow style, also inside of lists."""
    visited: set[int] = set()
    pending = [tree]
    while pending:
        value = pending.pop()
        if value.node is None or id(value.node) in visited:
            continue
        visited.add(id(value.node))
        children: list[YamlValue] = []
        if value.node.id == "mapping":
            keys: set[str] = set()
            for name, line, child in _pairs(value):
                if name in keys:
                    shown = escape(child.path)
                    log.error("duplicate_yaml_key", shown, _at(line, f"duplicate key '{shown}'"))
                keys.add(name)
                children.append(child)
        elif value.node.id == "sequence":
            children.extend(value.items())
        pending.extend(reversed(children))


# -- sections ------------------------------------------------------------------------------------


class _ClusterYamlReader:
    def __init__(self, log: DiagnosticLog) -> None:
        self._log = log

    def _error(self, code: str, path: str, line: int, message: str) -> None:
        self._log.error(code, escape(path), _at(line, message))

    def _invalid(self, path: str, line: int, message: str) -> None:
        self._error("invalid_cluster_yaml", path, line, message)

    def _entries(self, value: YamlValue, keys: Collection[str]) -> dict[str, YamlValue]:
        """The allowed entries of a mapping; other ones are reported."""
        if not value.is_null and value.node.id != "mapping":
            self._invalid(value.path, value.line, f"'{value.path}' must be a map of keys")
            return {}
        entries = {}
        for name, line, child in _pairs(value):
            if name in keys:
                entries[name] = child
            elif name == "streaming" and value.path.startswith("graphs."):
                self._invalid(child.path, line, "'streaming' was removed: delete the key")
            else:
                self._invalid(child.path, line, f"unknown key '{escape(child.path)}'")
        return entries

    def _named(self, value: YamlValue | None) -> Iterator[tuple[str, int, YamlValue]]:
        """The entries of a mapping by names that somebody chose."""
        if value is None or value.is_null:
            return
        if value.node.id != "mapping":
            self._invalid(value.path, value.line, f"'{value.path}' must be a map of keys")
            return
        for name, line, child in _pairs(value):
            if is_name(name):
                yield name, line, child
                continue
            self._error(
                "invalid_resource_id",
                child.path,
                line,
                f"invalid name '{escape(name)}'; expected a letter or _, then letters, digits, _ "
                "or -",
            )

    def _text(self, entries: dict[str, YamlValue], key: str) -> str | None:
        """An optional text; a value of another type is reported."""
        value = entries.get(key)
        if value is None or value.is_null:
            return None
        try:
            return value.text()
        except YamlProblem as problem:
            self._invalid(value.path, problem.line, problem.message)
            return None

    def read(self, tree: YamlValue) -> ClusterConfig:
        entries = self._entries(tree, _KEYS)
        self._version(tree, entries)
        providers = self._providers(entries.get("providers"))
        graphs = {
            name: graph
            for name, line, value in self._named(entries.get("graphs"))
            if (graph := self._graph(name, line, value, providers)) is not None
        }
        names = {name for name, _, _ in _pairs(entries["graphs"])} if "graphs" in entries else set()
        policies = {
            name: policy
            for name, line, value in self._named(entries.get("policies"))
            if (policy := self._policy(name, line, value, names)) is not None
        }
        lines = _lines(tree)
        self._bound_once(policies, lines)
        return ClusterConfig(
            self._metadata(entries.get("metadata")),
            self._storage(entries),
            self._lock(entries.get("state")),
            providers,
            graphs,
            policies,
            lines,
        )

    def _version(self, tree: YamlValue, entries: dict[str, YamlValue]) -> None:
        value = entries.get("version")
        if value is None:
            self._invalid("version", tree.line, "missing key 'version'")
            return
        try:
            version = value.whole()
        except YamlProblem as problem:
            self._invalid("version", problem.line, problem.message)
            return
        if version != CONFIG_VERSION:
            self._error(
                "unsupported_cluster_config_version",
                "version",
                value.line,
                f"the configuration has version {version}, this program supports {CONFIG_VERSION}",
            )

    def _metadata(self, value: YamlValue | None) -> str | None:
        if value is None:
            return None
        entries = self._entries(value, ("name",))
        name = self._text(entries, "name")
        if name is not None and not name.strip():
            line = entries["name"].line
            self._error("empty_metadata_name", "metadata.name", line, "the name is blank")
        return name

    def _storage(self, entries: dict[str, YamlValue]) -> str | None:
        storage = self._text(entries, "storage")
        if storage is None:
            return None
        line, trimmed = entries["storage"].line, storage.strip().rstrip("/")
        scheme, has_scheme, rest = trimmed.partition("://")
        if not trimmed or (has_scheme and (scheme not in ("s3", "file") or not rest)):
            self._error(
                "invalid_storage_root",
                "storage",
                line,
                f"invalid storage '{escape(storage)}'; expected s3://bucket/prefix, file://… or a "
                "path",
            )
            return None
        return trimmed

    def _lock(self, value: YamlValue | None) -> bool:
        if value is None:
            return True
        entries = self._entries(value, ("backend", "lock"))
        backend = self._text(entries, "backend")
        if backend not in (None, "cluster"):
            self._error(
                "unsupported_state_backend",
                "state.backend",
                entries["backend"].line,
                f"invalid backend '{escape(backend)}'; expected cluster",
            )
        lock = entries.get("lock")
        if lock is None or lock.is_null:
            return True
        try:
            word = lock.atom()
        except YamlProblem as problem:
            self._invalid("state.lock", problem.line, problem.message)
            return True
        if not isinstance(word, bool):
            self._invalid("state.lock", lock.line, "state.lock must be true or false")
            return True
        return word

    # -- providers ---------------------------------------------------------------------------

    def _providers(self, value: YamlValue | None) -> dict[str, EmbeddingProfile]:
        if value is None:
            return {}
        entries = self._entries(value, ("embedding",))
        return {
            name: profile
            for name, line, child in self._named(entries.get("embedding"))
            if (profile := self._provider(line, child)) is not None
        }

    def _provider(self, line: int, value: YamlValue) -> EmbeddingProfile | None:
        entries = self._entries(value, ("kind", "provider", "base_url", "model", "api_key"))
        before = len(self._log.entries)
        if "kind" in entries and "provider" in entries:
            at = entries["provider"]
            self._invalid(at.path, at.line, "'provider' means 'kind': write one of them")
        kind = self._text(entries, "kind") or self._text(entries, "provider") or PROVIDER_KINDS[0]
        if kind not in PROVIDER_KINDS:
            at = entries["kind" if self._text(entries, "kind") else "provider"]
            self._error(
                "invalid_embedding_provider",
                at.path,
                at.line,
                f"invalid kind '{escape(kind)}'; expected {', '.join(PROVIDER_KINDS)}",
            )
        profile = EmbeddingProfile(
            kind,
            self._text(entries, "base_url"),
            self._text(entries, "model"),
            self._text(entries, "api_key"),
        )
        for name in ("base_url", "model"):
            if getattr(profile, name) is not None and not getattr(profile, name).strip():
                at = entries[name]
                self._error("invalid_embedding_provider", at.path, at.line, f"'{name}' is blank")
        self._check_key(profile, line, value, entries)
        return profile if len(self._log.entries) == before else None

    def _check_key(
        self,
        profile: EmbeddingProfile,
        line: int,
        value: YamlValue,
        entries: dict[str, YamlValue],
    ) -> None:
        key = entries.get("api_key")
        if key is None or key.is_null:
            if profile.kind != "mock":
                self._error(
                    "embedding_api_key_required",
                    f"{value.path}.api_key",
                    line if key is None else key.line,
                    'api_key is missing; name a variable: "${NAME}"',
                )
        elif profile.api_key is not None and key_variable(profile) is None:
            # The text may be a key: it is not repeated.
            self._error(
                "embedding_api_key_inline",
                key.path,
                key.line,
                'api_key must name a variable, "${NAME}"; keys do not belong in this file',
            )

    # -- graphs ------------------------------------------------------------------------------

    def _graph(
        self, name: str, line: int, value: YamlValue, providers: Collection[str]
    ) -> GraphConfig | None:
        if name == CLUSTER or not is_graph_id(name):
            self._error(
                "invalid_resource_id",
                value.path,
                line,
                f"a server cannot serve a graph with the id '{name}': at most 64 letters, digits "
                "and -, and no word that means something else there",
            )
        entries = self._entries(value, ("schema", "queries", "embedding_provider"))
        schema = self._text(entries, "schema")
        if schema is None and ("schema" not in entries or entries["schema"].is_null):
            self._invalid(f"{value.path}.schema", line, f"missing key '{value.path}.schema'")
        queries = tuple(self._queries(entries.get("queries")))
        provider = self._reference(entries, providers)
        return None if schema is None else GraphConfig(name, schema, queries, provider)

    def _reference(self, entries: dict[str, YamlValue], providers: Collection[str]) -> str | None:
        """The address of the provider that a graph names."""
        written = self._text(entries, "embedding_provider")
        if written is None:
            return None
        value = entries["embedding_provider"]
        name = written.removeprefix(PROVIDER)
        if "." in name:
            self._error(
                "wrong_kind_reference",
                value.path,
                value.line,
                f"'{escape(written)}' is not an embedding provider",
            )
        elif name not in providers:
            self._error(
                "dangling_embedding_provider_reference",
                value.path,
                value.line,
                f"there is no valid embedding provider '{escape(name)}'",
            )
        else:
            return f"{PROVIDER}{name}"
        return None

    def _queries(self, value: YamlValue | None) -> Iterator[QuerySource]:
        if value is None or value.is_null:
            return
        if value.node.id == "mapping":
            for name, line, child in self._named(value):
                entries = self._entries(child, ("file",))
                file = self._text(entries, "file")
                if file is not None:
                    yield QuerySource(file, line, child.path, name)
                elif "file" not in entries or entries["file"].is_null:
                    path = f"{child.path}.file"
                    self._invalid(path, line, f"missing key '{path}'")
            return
        for item in value.items() if value.is_list else (value,):
            try:
                yield QuerySource(item.text(), item.line, item.path)
            except YamlProblem as problem:
                self._invalid(item.path, problem.line, problem.message)

    # -- policies ----------------------------------------------------------------------------

    def _policy(
        self, name: str, line: int, value: YamlValue, graphs: Collection[str]
    ) -> PolicyConfig | None:
        entries = self._entries(value, ("file", "applies_to"))
        file = self._text(entries, "file")
        if file is None and ("file" not in entries or entries["file"].is_null):
            self._invalid(f"{value.path}.file", line, f"missing key '{value.path}.file'")
        bindings = self._bindings(value, line, entries.get("applies_to"), graphs)
        return None if file is None else PolicyConfig(name, file, bindings)

    def _bindings(
        self, policy: YamlValue, line: int, value: YamlValue | None, graphs: Collection[str]
    ) -> tuple[str, ...]:
        words: list[str] = []
        try:
            items = [] if value is None else list(value.items())
        except YamlProblem as problem:
            self._invalid(f"{policy.path}.applies_to", problem.line, problem.message)
            return ()
        line = line if value is None else value.line
        if not items:
            self._error(
                "policy_missing_applies_to",
                f"{policy.path}.applies_to",
                line,
                "applies_to must name the cluster or at least one graph",
            )
        for item in items:
            try:
                word = item.text()
            except YamlProblem as problem:
                self._invalid(item.path, problem.line, problem.message)
                continue
            if self._is_bindable(item, word, graphs):
                words.append(word)
        bindings = normal_bindings(words)
        if CLUSTER in bindings and len(bindings) > 1:
            self._error(
                "policy_mixed_binding_kinds",
                f"{policy.path}.applies_to",
                line,
                "a policy is bound to the cluster or to graphs, not to both",
            )
        return bindings

    def _is_bindable(self, item: YamlValue, word: str, graphs: Collection[str]) -> bool:
        if word == CLUSTER:
            return True
        graph = word.removeprefix("graph.")
        if "." in graph:
            message = f"'{escape(word)}' is neither a graph nor the cluster"
            self._error("wrong_kind_reference", item.path, item.line, message)
            return False
        if graph not in graphs:
            message = f"there is no graph '{escape(graph)}'"
            self._error("dangling_graph_reference", item.path, item.line, message)
            return False
        return True

    def _bound_once(self, policies: dict[str, PolicyConfig], lines: dict[str, int]) -> None:
        bound: dict[str, str] = {}
        for name, policy in policies.items():
            for binding in policy.bindings:
                if binding in bound:
                    path = f"policies.{name}.applies_to"
                    self._error(
                        "duplicate_policy_binding",
                        path,
                        lines[path],
                        f"policy '{bound[binding]}' is bound to '{binding}' too",
                    )
                bound.setdefault(binding, name)
