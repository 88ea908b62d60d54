"""The desired state: every declared resource with its digest and content, checked.

Schemas are compiled, queries checked against them, policies parsed and their rules for rows checked
against the schemas of the graphs that they are bound to. No storage is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.cluster.bundle import ConfigBundle, FileUnreadable
from omnigraph.cluster.config import ClusterConfig, GraphConfig, PolicyConfig, QuerySource
from omnigraph.cluster.config_reader import line_of, read_config
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.ledger import EmbeddingProfile
from omnigraph.cluster.resources import (
    CLUSTER,
    PROVIDER,
    Dependency,
    config_digest,
    content_digest,
    graph_digest,
    is_name,
    profile_digest,
)
from omnigraph.errors import LanguageError, OmniGraphError, PackageMissing, PolicyInvalid
from omnigraph.escaping import escape
from omnigraph.lang.diagnostics import Phase, Source
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import read_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.policy.actions import BundleScope
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.policy.findings import PolicyFinding
    from omnigraph.policy.policy import Policy

QUERY_SUFFIX = ".gq"


@dataclass(frozen=True, slots=True)
class DesiredResource:
    """A declared resource."""

    address: str
    digest: str
    path: str | None = None
    """Its file, relative to the configuration."""
    content: bytes | None = None
    provider: str | None = None
    bindings: tuple[str, ...] | None = None
    profile: EmbeddingProfile | None = None


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Everything that a configuration declares, as far as it is valid."""

    config: ClusterConfig
    resources: Mapping[str, DesiredResource]
    dependencies: tuple[Dependency, ...]
    config_digest: str | None
    """Absent if the configuration has errors."""
    catalogs: Mapping[str, Catalog] = field(default_factory=dict)
    """The compiled schema of each graph."""

    @property
    def digests(self) -> dict[str, str]:
        return {address: self.resources[address].digest for address in sorted(self.resources)}

    def schema_text(self, graph: str) -> str:
        """The text of the schema of a declared graph."""
        content = self.resources[f"schema.{graph}"].content
        assert content is not None
        return content.decode("utf-8")


def read_desired(bundle: ConfigBundle, log: DiagnosticLog) -> DesiredState | None:
    """The desired state of a bundle; ``None`` if ``cluster.yaml`` cannot be used at all."""
    config = read_config(bundle, log)
    return None if config is None else _DesiredReader(bundle, config, log).read()


@dataclass(frozen=True, slots=True)
class _FileQueries:
    """The queries of one file, or none if it does not parse."""

    content: bytes
    source: Source
    queries: tuple[ast.Query, ...]


class _DesiredReader:
    def __init__(self, bundle: ConfigBundle, config: ClusterConfig, log: DiagnosticLog) -> None:
        self._bundle = bundle
        self._config = config
        self._log = log
        self._resources: dict[str, DesiredResource] = {}
        self._dependencies: set[Dependency] = set()
        self._catalogs: dict[str, Catalog] = {}
        self._compiled: dict[str, Catalog | LanguageError] = {}
        self._texts: dict[str, _FileQueries | None] = {}
        self._fitting: set[tuple[str, str, str]] = set()
        """Schema file, query file and name of queries that were checked without a problem."""
        self._rules: dict[tuple[str, BundleScope], Policy | OmniGraphError] = {}
        self._findings: dict[tuple[str, str], tuple[PolicyFinding, ...]] = {}
        """What is wrong with the rules of a policy file under a schema file."""

    def read(self) -> DesiredState:
        for name, profile in self._config.providers.items():
            self._add(
                DesiredResource(f"{PROVIDER}{name}", profile_digest(profile), profile=profile)
            )
        for graph in self._config.graphs.values():
            self._graph(graph)
        for policy in self._config.policies.values():
            self._policy(policy)
        resources = dict(sorted(self._resources.items()))
        digests = {address: resource.digest for address, resource in resources.items()}
        return DesiredState(
            self._config,
            resources,
            tuple(sorted(self._dependencies, key=lambda edge: (edge.source, edge.target))),
            config_digest(self._config.to_json(), digests) if self._log.ok else None,
            self._catalogs,
        )

    def _add(self, resource: DesiredResource) -> None:
        self._resources[resource.address] = resource

    def _depend(self, source: str, target: str) -> None:
        self._dependencies.add(Dependency(source, target))

    def _content(self, code: str, path: str, field: str) -> bytes | None:
        """The bytes of a file; ``None`` after noting why they cannot be read."""
        try:
            return self._bundle.read(path)
        except FileUnreadable as problem:
            message = f"{self._config.at(field)}: cannot read '{path}': {problem.reason}"
            self._log.error(code, field, message)
            return None

    def _text(self, code: str, path: str, field: str, content: bytes) -> str | None:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"{path}:{line_of(error)}: the file is not UTF-8 text"
            self._log.error(code, field, message)
            return None

    # -- graphs ------------------------------------------------------------------------------

    def _graph(self, graph: GraphConfig) -> None:
        address, schema = f"graph.{graph.graph_id}", f"schema.{graph.graph_id}"
        schema_digest = self._schema(graph, schema)
        queries = self._queries(graph)
        provider = graph.provider
        self._depend(schema, address)
        for name in queries:
            self._depend(f"query.{graph.graph_id}.{name}", address)
            self._depend(f"query.{graph.graph_id}.{name}", schema)
        if provider is not None:
            self._depend(address, provider)
        if schema_digest is None:
            return
        bound = None if provider is None else (provider, self._resources[provider].digest)
        digest = graph_digest(graph.graph_id, schema_digest, queries, bound)
        self._add(DesiredResource(address, digest, provider=provider))

    def _schema(self, graph: GraphConfig, address: str) -> str | None:
        field = f"graphs.{graph.graph_id}.schema"
        content = self._content("schema_file_missing", graph.schema, field)
        if content is None:
            return None
        text = self._text("schema_parse_error", graph.schema, field, content)
        if text is not None:
            compiled = self._compile(graph.schema, text)
            if isinstance(compiled, Catalog):
                self._catalogs[graph.graph_id] = compiled
            else:
                for finding in compiled.diagnostics:
                    is_syntax = finding.phase is Phase.PARSE
                    code = "schema_parse_error" if is_syntax else "schema_catalog_error"
                    self._log.error(code, field, f"{finding.location}: {finding.text}")
        digest = content_digest(content)
        self._add(DesiredResource(address, digest, graph.schema, content))
        return digest

    def _compile(self, path: str, text: str) -> Catalog | LanguageError:
        """The catalog of a schema file, which several graphs may have, or its errors."""
        if path not in self._compiled:
            try:
                self._compiled[path] = compile_schema(Source(path, text), is_new=True)
            except LanguageError as error:
                self._compiled[path] = error
        return self._compiled[path]

    # -- queries -----------------------------------------------------------------------------

    def _queries(self, graph: GraphConfig) -> dict[str, str]:
        """The digests of the queries of a graph by name."""
        digests: dict[str, str] = {}
        declared: dict[str, str] = {}
        unchecked = 0
        for source in graph.queries:
            for path in self._query_files(source):
                read = self._query_file(path, source)
                if read is None:
                    continue
                for query in self._selected(source, path, read):
                    if query.name in declared:
                        self._log.error(
                            "duplicate_query_name",
                            source.field,
                            f"{_location(read, query)}: query '{query.name}' is declared in "
                            f"'{declared[query.name]}' too",
                        )
                        continue
                    declared[query.name] = path
                    digests[query.name] = content_digest(read.content)
                    address = f"query.{graph.graph_id}.{query.name}"
                    self._add(DesiredResource(address, digests[query.name], path, read.content))
                    unchecked += not self._check(graph, source, read, query)
        if unchecked:
            field = f"graphs.{graph.graph_id}.queries"
            self._log.warning(
                "query_typecheck_skipped",
                field,
                f"{self._config.at(field)}: {unchecked} queries are not checked, because the "
                "schema is invalid",
            )
        return digests

    def _query_files(self, source: QuerySource) -> list[str]:
        if not self._bundle.is_directory(source.path):
            return [source.path]
        try:
            listing = self._bundle.listing(source.path)
        except FileUnreadable as problem:
            message = f"cluster.yaml:{source.line}: cannot list '{source.path}': {problem.reason}"
            self._log.error("query_dir_unreadable", source.field, message)
            return []
        files = [path for path in listing if path.endswith(QUERY_SUFFIX)]
        if not files:
            message = f"cluster.yaml:{source.line}: '{source.path}' has no {QUERY_SUFFIX} files"
            self._log.warning("query_dir_empty", source.field, message)
        return files

    def _query_file(self, path: str, source: QuerySource) -> _FileQueries | None:
        if path not in self._texts:
            self._texts[path] = self._parse(path, source)
        return self._texts[path]

    def _parse(self, path: str, source: QuerySource) -> _FileQueries | None:
        content = self._content("query_file_missing", path, source.field)
        if content is None:
            return None
        text = self._text("query_parse_error", path, source.field, content)
        if text is None:
            return None
        written = Source(path, text)
        try:
            return _FileQueries(content, written, tuple(read_queries(written).queries))
        except LanguageError as error:
            for finding in error.diagnostics:
                message = f"{finding.location}: {finding.text}"
                self._log.error("query_parse_error", source.field, message)
            return None

    def _selected(self, source: QuerySource, path: str, read: _FileQueries) -> Iterator[ast.Query]:
        for query in read.queries:
            if source.name is None and not is_name(query.name):
                message = f"{_location(read, query)}: invalid query name '{query.name}'"
                self._log.error("invalid_resource_id", source.field, message)
            elif source.name in (None, query.name):
                yield query
        if source.name is not None and all(query.name != source.name for query in read.queries):
            self._log.error(
                "query_key_mismatch",
                source.field,
                f"cluster.yaml:{source.line}: '{path}' declares no query '{source.name}'",
            )

    def _check(
        self, graph: GraphConfig, source: QuerySource, read: _FileQueries, query: ast.Query
    ) -> bool:
        """Check a query against the schema of its graph; returns whether there is one."""
        from omnigraph.plan import plan_query

        catalog = self._catalogs.get(graph.graph_id)
        if catalog is None:
            return False
        checked = (graph.schema, read.source.name, query.name)
        if checked in self._fitting:
            return True
        try:
            plan_query(catalog, read.source, query)
            self._fitting.add(checked)
        except LanguageError as error:
            for finding in error.diagnostics:
                message = f"{finding.location}: query '{query.name}': {finding.text}"
                self._log.error("query_typecheck_error", source.field, message)
        except OmniGraphError as error:
            message = f"{_location(read, query)}: query '{query.name}': {error.message}"
            self._log.error("query_typecheck_error", source.field, message)
        return True

    # -- policies ----------------------------------------------------------------------------

    def _policy(self, policy: PolicyConfig) -> None:
        address, field = f"policy.{policy.name}", f"policies.{policy.name}.file"
        for binding in policy.bindings:
            if binding != CLUSTER:
                self._depend(address, binding)
        content = self._content("policy_file_missing", policy.file, field)
        if content is None:
            return
        text = self._text("policy_invalid", policy.file, field, content)
        if text is not None:
            self._check_policy(policy, field, text)
        self._add(
            DesiredResource(
                address, content_digest(content), policy.file, content, bindings=policy.bindings
            )
        )

    def _parsed_policy(self, file: str, scope: BundleScope, text: str) -> Policy | OmniGraphError:
        """The rules of a policy file, which may be bound in several ways, or its error."""
        from omnigraph.policy.policy import Policy

        if (file, scope) not in self._rules:
            try:
                self._rules[file, scope] = Policy.parse(text, name=file, scope=scope)
            except (PolicyInvalid, PackageMissing) as error:
                self._rules[file, scope] = error
        return self._rules[file, scope]

    def _check_policy(self, policy: PolicyConfig, field: str, text: str) -> None:
        scope: BundleScope = "server" if CLUSTER in policy.bindings else "graph"
        rules = self._parsed_policy(policy.file, scope, text)
        if isinstance(rules, PolicyInvalid):
            line = rules.details.get("line", 1)
            message = rules.message.removeprefix(f"policy '{escape(policy.file)}', line {line}: ")
            self._log.error("policy_invalid", field, f"{policy.file}:{line}: {message}")
            return
        if isinstance(rules, OmniGraphError):
            message = f"{self._config.at(field)}: {rules.message}"
            self._log.warning("policy_check_skipped", field, message)
            return
        for binding in policy.bindings:
            graph = binding.removeprefix("graph.")
            catalog = self._catalogs.get(graph)
            if binding == CLUSTER or catalog is None:
                continue
            checked = policy.file, self._config.graphs[graph].schema
            if checked not in self._findings:
                self._findings[checked] = rules.check_schema(catalog)
            for finding in self._findings[checked]:
                message = f"{policy.file}:{finding.line}: {binding}: {finding.message}"
                if finding.severity == "error":
                    self._log.error("policy_invalid", field, message)
                else:
                    self._log.warning("policy_closes_rows", field, message)


def _location(read: _FileQueries, query: ast.Query) -> str:
    """File, line and column of the name of a query."""
    line, column = read.source.position(query.name_span.start)
    return f"{read.source.name}:{line}:{column}"
