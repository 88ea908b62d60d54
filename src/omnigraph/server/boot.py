"""What a server is to serve: one store, or the applied state of a cluster.

A plan is made before anything is opened, by reading only. What concerns one graph sets that graph
aside, so that the others are served; everything else refuses the start. The plan has no secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from omnigraph.api.handle import parse_location
from omnigraph.api.stored_queries import query_files, scan_directory
from omnigraph.cluster.applied import AppliedCluster, AppliedGraph, read_applied
from omnigraph.cluster.diagnostics import ClusterDiagnostic, not_ready
from omnigraph.cluster.graph_ids import is_graph_id
from omnigraph.cluster.ledger import EmbeddingProfile
from omnigraph.cluster.location import CONFIG, LEDGER, cluster_root
from omnigraph.cluster.resources import content_digest, key_variable
from omnigraph.embed import EmbeddingConfig
from omnigraph.errors import (
    EmbeddingError,
    FormatRefused,
    GraphNotFound,
    InputError,
    OmniGraphError,
    ServerNotReady,
)
from omnigraph.policy.actions import BundleScope
from omnigraph.policy.policy import Policy
from omnigraph.server.control import KeptGraph
from omnigraph.server.graph_ids import graph_id_of
from omnigraph.settings import Settings
from omnigraph.storage.objects.store import ObjectStore

_QUERY_CODES = {
    "directory": "query_dir_unreadable",
    "file": "query_file_missing",
    "text": "query_parse_error",
    "duplicate": "duplicate_query_name",
}


class QueryPayload(msgspec.Struct, frozen=True):
    """A stored query: its name, and the ``.gq`` text that declares it, maybe beside others."""

    name: str
    text: str


class Quarantine(msgspec.Struct, frozen=True):
    """A graph that is not served, and why."""

    graph_id: str
    code: str
    message: str
    is_retried: bool = False
    """Whether the process tries to open it again; until then requests to it are answered by 503."""

    def __str__(self) -> str:
        return f"[{self.code}] graph.{self.graph_id}: {self.message}"


class GraphSpec(msgspec.Struct, frozen=True):
    """A graph to serve."""

    graph_id: str
    uri: str
    queries: tuple[QueryPayload, ...] = ()
    policy_name: str | None = None
    policy_text: str | None = None
    embedding: EmbeddingProfile | None = None
    kept: KeptGraph | None = None
    """Why this is an earlier state of the graph, and not the one that was applied."""

    def is_same(self, other: GraphSpec) -> bool:
        """Whether both serve the same, for whatever reason."""
        return msgspec.structs.replace(self, kept=None) == msgspec.structs.replace(other, kept=None)


class BootPlan(msgspec.Struct, frozen=True):
    """Everything that a server serves, before it is opened."""

    source: str
    is_cluster: bool
    graphs: tuple[GraphSpec, ...]
    digest: str
    """Changes if the plan does; for a cluster, the SHA-256 of its ledger."""
    quarantined: tuple[Quarantine, ...] = ()
    server_policy_name: str | None = None
    server_policy_text: str | None = None
    revision: int | None = None
    """Of the ledger of a cluster."""
    has_policies: bool = False
    """Whether any policy is declared, also one of a graph that is not served."""
    warnings: tuple[str, ...] = ()

    @property
    def kept(self) -> dict[str, KeptGraph]:
        """The graphs that keep an earlier state, and why."""
        return {graph.graph_id: graph.kept for graph in self.graphs if graph.kept is not None}

    @property
    def served(self) -> frozenset[str]:
        """The ids of the graphs."""
        return frozenset(graph.graph_id for graph in self.graphs)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of all queries and policies, by their digests."""
        texts = {query.text for graph in self.graphs for query in graph.queries}
        texts |= {graph.policy_text for graph in self.graphs if graph.policy_text is not None}
        if self.server_policy_text is not None:
            texts.add(self.server_policy_text)
        return {content_digest(text.encode("utf-8")): text for text in texts}

    def keeping(self, previous: BootPlan, kept: Iterable[KeptGraph]) -> BootPlan:
        """The plan in which some graphs stay as they are in the previous one."""
        reasons = {graph.graph_id: graph for graph in kept}
        before = {graph.graph_id: graph for graph in previous.graphs if graph.graph_id in reasons}
        unchanged = [
            msgspec.structs.replace(graph, kept=reasons[graph_id])
            for graph_id, graph in before.items()
        ]
        others = [graph for graph in self.graphs if graph.graph_id not in reasons]
        lost = [
            Quarantine(reason.graph_id, reason.code, reason.message)
            for reason in reasons.values()
            if reason.graph_id not in before
        ]
        aside = [graph for graph in self.quarantined if graph.graph_id not in reasons]
        return msgspec.structs.replace(
            self,
            graphs=tuple(sorted([*others, *unchanged], key=lambda graph: graph.graph_id)),
            quarantined=tuple(sorted([*aside, *lost], key=lambda graph: graph.graph_id)),
        )


# -- one store -----------------------------------------------------------------------------------


def plan_from_store(
    uri: str,
    policy_file: str | None = None,
    queries_directory: str | None = None,
    server_policy_file: str | None = None,
) -> BootPlan:
    """The plan for one graph, with the policies of files and the queries of a directory.

    Raises ``ServerNotReady`` if one of them cannot be used.
    """
    policy_text = _bundle_text(uri, policy_file, "graph")
    server_policy_text = _bundle_text(uri, server_policy_file, "server")
    queries = _queries(uri, queries_directory)
    graph = GraphSpec(graph_id_of(uri), uri, queries, policy_file, policy_text)
    return BootPlan(
        source=uri,
        is_cluster=False,
        graphs=(graph,),
        digest=hashlib.sha256(msgspec.json.encode((graph, server_policy_text))).hexdigest(),
        server_policy_name=server_policy_file,
        server_policy_text=server_policy_text,
        has_policies=policy_text is not None or server_policy_text is not None,
    )


def _bundle_text(uri: str, file: str | None, scope: BundleScope) -> str | None:
    """The text of a valid bundle; none without a file."""
    if file is None:
        return None
    text = _text(Path(file), "policy_file_missing")
    message = _policy_fault(text, file, scope)
    if message is not None:
        raise not_ready(uri, [ClusterDiagnostic("policy_invalid", file, message)])
    return text


def _queries(uri: str, directory: str | None) -> tuple[QueryPayload, ...]:
    """Every query that the files of a directory declare, sorted by name."""
    if directory is None:
        return ()
    scanned = scan_directory(directory)
    if scanned.problems:
        problems = [
            ClusterDiagnostic(_QUERY_CODES[problem.kind], problem.path, problem.error.message)
            for problem in scanned.problems
        ]
        raise not_ready(uri, problems)
    queries = sorted(scanned.queries, key=lambda query: query.name)
    return tuple(QueryPayload(query.name, query.text) for query in queries)


def _text(path: Path, code: str) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise _unreadable(code, str(path), error) from None
    except ValueError:
        message = "the file is not UTF-8 text"
        raise not_ready(str(path), [ClusterDiagnostic(code, str(path), message)]) from None


def _unreadable(code: str, path: str, error: OSError) -> ServerNotReady:
    reason = (error.strerror or "it cannot be read").lower()
    return not_ready(path, [ClusterDiagnostic(code, path, reason)])


# -- a cluster -----------------------------------------------------------------------------------


def plan_from_cluster(
    target: str,
    settings: Settings,
    previous: BootPlan | None = None,
) -> BootPlan:
    """The plan for the applied state of a cluster: a directory, or a storage root.

    The graphs of the ``previous`` plan are served already: see ``read_applied``. Its texts are
    neither read nor checked again. Raises ``ServerNotReady`` if the cluster as a whole cannot be
    served.
    """
    try:
        root = cluster_root(target)
    except InputError as error:
        diagnostic = ClusterDiagnostic("invalid_cluster_yaml", CONFIG, error.message)
        raise not_ready(target, [diagnostic]) from None
    if previous is None:
        applied = read_applied(root, settings)
    else:
        applied = read_applied(root, settings, previous.served, previous.texts)
    _check_server_policy(target, applied)
    faults = _PolicyFaults(() if previous is None else previous.graphs)
    specs: list[GraphSpec] = []
    quarantined = [
        Quarantine(graph, why.code, why.message) for graph, why in applied.quarantined.items()
    ]
    for graph in applied.graphs:
        reason = _fault(graph, settings, faults)
        if reason is None:
            specs.append(_spec(graph))
        else:
            quarantined.append(reason)
    policy = applied.server_policy
    return BootPlan(
        source=target,
        is_cluster=True,
        graphs=tuple(specs),
        digest=applied.digest,
        quarantined=tuple(sorted(quarantined, key=lambda graph: graph.graph_id)),
        server_policy_name=None if policy is None else policy.name,
        server_policy_text=None if policy is None else policy.text,
        revision=applied.revision,
        has_policies=bool(applied.bound),
        warnings=tuple(map(str, applied.warnings)),
    )


def _check_server_policy(target: str, applied: AppliedCluster) -> None:
    policy = applied.server_policy
    if policy is None:
        return
    message = _policy_fault(policy.text, policy.name, "server")
    if message is not None:
        diagnostic = ClusterDiagnostic("policy_invalid", f"policy.{policy.name}", message)
        raise not_ready(target, [diagnostic])


def _policy_fault(text: str, name: str, scope: BundleScope) -> str | None:
    try:
        Policy.parse(text, name=name, scope=scope)
    except InputError as error:
        return error.message
    return None


class _PolicyFaults:
    """What is wrong with policies of graphs; each text is parsed once, one in force not at all."""

    def __init__(self, served: Iterable[GraphSpec]) -> None:
        self._faults: dict[str, str | None] = {
            graph.policy_text: None for graph in served if graph.policy_text is not None
        }

    def of(self, text: str, name: str) -> str | None:
        if text not in self._faults:
            self._faults[text] = _policy_fault(text, name, "graph")
        return self._faults[text]


def _fault(graph: AppliedGraph, settings: Settings, faults: _PolicyFaults) -> Quarantine | None:
    """Why a graph cannot be served; ``None`` if it can be tried."""
    if not is_graph_id(graph.graph_id):
        return Quarantine(
            graph.graph_id,
            "invalid_graph_id",
            "the id cannot be part of an address; use up to 64 letters, digits and '-'",
        )
    if graph.policy is not None:
        message = faults.of(graph.policy.text, graph.policy.name)
        if message is not None:
            return Quarantine(graph.graph_id, "policy_invalid", message)
    if graph.embedding is not None:
        try:
            embedding_config(graph.embedding, settings)
        except EmbeddingError as error:
            return Quarantine(graph.graph_id, "embedding_provider_unusable", error.message)
    return None


def _spec(graph: AppliedGraph) -> GraphSpec:
    policy = graph.policy
    return GraphSpec(
        graph.graph_id,
        graph.uri,
        tuple(QueryPayload(query.name, query.text) for query in graph.queries),
        None if policy is None else policy.name,
        None if policy is None else policy.text,
        graph.embedding,
    )


def embedding_config(profile: EmbeddingProfile, settings: Settings) -> EmbeddingConfig:
    """The provider of a graph, with its key from the environment as it is now.

    Raises ``EmbeddingError`` if the variable is not set, or the provider does not exist.
    """
    variable = key_variable(profile)
    key = "" if variable is None else _secret(variable, settings)
    if profile.kind != "mock" and not key:
        raise EmbeddingError(
            f"the variable {variable} with the key of the embedding provider is not set"
            if variable
            else f"the embedding provider '{profile.kind}' has no api_key"
        )
    return EmbeddingConfig(
        profile.kind, profile.model or "", profile.base_url or "", key
    ).completed()


def _secret(variable: str, settings: Settings) -> str:
    """A secret from its variable, or from the file that ``<variable>_FILE`` names."""
    value = settings.referenced(variable)
    path = "" if value else settings.referenced(f"{variable}_FILE")
    if not path:
        return value
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, ValueError):
        raise EmbeddingError(f"the file that {variable}_FILE names cannot be read") from None


# -- after graphs were opened --------------------------------------------------------------------


def quarantine_of(graph_id: str, error: OmniGraphError) -> Quarantine:
    """Why a graph that does not open is not served, without paths."""
    if isinstance(error, FormatRefused):
        hint = error.hint or "export it with the release that wrote it, then init and load here"
        return Quarantine(graph_id, "format_refused", f"{error.message}; {hint}")
    return Quarantine(graph_id, error.code, error.message, not isinstance(error, GraphNotFound))


def check_served(
    plan: BootPlan, quarantined: Iterable[Quarantine], *, require_all_graphs: bool
) -> None:
    """Refuse the start if too little is left after graphs were opened.

    ``quarantined`` are all graphs that are not served, those of the plan included.
    """
    graphs: Sequence[Quarantine] = tuple(quarantined)
    if not graphs:
        return
    ids = {graph.graph_id for graph in graphs}
    lines = [ClusterDiagnostic(g.code, f"graph.{g.graph_id}", g.message) for g in graphs]
    if require_all_graphs:
        raise not_ready(plan.source, lines)
    if all(graph.graph_id in ids for graph in plan.graphs):
        code = "cluster_no_healthy_graphs" if plan.is_cluster else "graph_not_served"
        summary = ClusterDiagnostic(code, "graphs", "no graph can be served")
        raise not_ready(plan.source, [summary, *lines])


# -- watching ------------------------------------------------------------------------------------


def source_signature(
    location: str,
    is_cluster: bool,
    settings: Settings,
    policy_files: Iterable[str | None] = (),
    queries_directory: str | None = None,
) -> str:
    """Changes if what a plan is made of may have changed; a few looks at files or objects.

    Compare it every few seconds and make a new plan if it differs. What cannot be looked at has a
    signature too: making the plan reports the error.
    """
    parts: list[object] = []
    if is_cluster:
        parts.append(file_signature(Path(location.removeprefix("file://"), CONFIG)))
        try:
            root = parse_location(cluster_root(location), None, settings)
            if not root.is_missing():
                parts.append(ObjectStore(root).signatures([LEDGER]))
        except OmniGraphError as error:
            parts.append(error.code)
    parts += [file_signature(Path(file)) for file in policy_files if file is not None]
    if queries_directory is not None:
        try:
            parts += [(path.name, file_signature(path)) for path in query_files(queries_directory)]
        except InputError as error:
            parts.append(error.message)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()


def file_signature(path: Path) -> tuple[int, ...] | None:
    """Changes if a file was written or replaced; ``None`` if there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
