"""What a server may serve of a cluster: the applied graphs with queries, policies and providers.

Everything comes from the ledger and the blobs that it names, verified by their digests. A problem
that concerns one graph only sets that graph aside; every other one fails the whole reading, and all
problems are reported at once. Blobs of graphs that are set aside are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from omnigraph.api.handle import parse_location
from omnigraph.cluster.at_once import REQUESTS_AT_ONCE, at_once
from omnigraph.cluster.diagnostics import ClusterDiagnostic, not_ready
from omnigraph.cluster.ledger import (
    ClusterSidecar,
    EmbeddingProfile,
    LedgerProblem,
    LedgerResource,
    LedgerState,
    parse_address,
    read_cluster_sidecar,
    read_state,
)
from omnigraph.cluster.location import LEDGER, graph_uri
from omnigraph.cluster.payloads import payload_path
from omnigraph.cluster.resources import (
    CLUSTER,
    address_parts,
    content_digest,
    key_variable,
    normal_binding,
    profile_digest,
)
from omnigraph.errors import OmniGraphError, StorageError, StorageMissing
from omnigraph.records import dataclass
from omnigraph.settings import Settings
from omnigraph.storage.objects.store import ObjectStore

RECOVERIES = "__cluster/recoveries"


@dataclass(frozen=True, slots=True)
class AppliedQuery:
    """A stored query: its name, and the text of the file that declares it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """A policy bundle and what it is bound to: ``cluster`` or ``graph.<id>``."""

    name: str
    text: str
    bindings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppliedGraph:
    """A graph of the ledger."""

    graph_id: str
    uri: str
    queries: tuple[AppliedQuery, ...] = ()
    policy: AppliedPolicy | None = None
    embedding: EmbeddingProfile | None = None


@dataclass(frozen=True, slots=True)
class AppliedCluster:
    """The applied state of a cluster."""

    root: str
    revision: int
    digest: str
    """The SHA-256 of the ledger."""
    graphs: tuple[AppliedGraph, ...]
    quarantined: Mapping[str, ClusterDiagnostic] = field(default_factory=dict)
    """Graphs that cannot be served now, with the reason."""
    server_policy: AppliedPolicy | None = None
    bound: frozenset[str] = frozenset()
    """Everything that any policy is bound to, also graphs that are set aside."""
    warnings: tuple[ClusterDiagnostic, ...] = ()


def read_applied(
    root: str,
    settings: Settings,
    live: Collection[str] = frozenset(),
    texts: Mapping[str, str] | None = None,
) -> AppliedCluster:
    """Read the applied state of a cluster; raises ``ServerNotReady`` with all its problems.

    ``live`` are graphs that the caller serves already. An operation that is under way does not set
    them aside, and a damaged text of theirs concerns nobody else: they can go on as they are.
    ``texts`` are texts that the caller has, by their digests; they are not read again.
    """
    return _Reader(root, settings, live, texts or {}).read()


class _Reader:
    def __init__(
        self, root: str, settings: Settings, live: Collection[str], texts: Mapping[str, str]
    ) -> None:
        self._root = root
        self._live = live
        self._texts = dict(texts)
        self._damaged: dict[str, ClusterDiagnostic] = {}
        self._location = parse_location(root, None, settings)
        self._objects: ObjectStore | None = None
        self._problems: list[ClusterDiagnostic] = []
        self._warnings: list[ClusterDiagnostic] = []
        self._pending: dict[str, ClusterDiagnostic] = {}

    def read(self) -> AppliedCluster:
        if not self._location.is_missing():
            # Opening the objects of a missing directory would create it.
            self._objects = ObjectStore(self._location)
        self._read_sidecars()
        text, state = self._read_ledger()
        self._read_texts(state)
        policies = self._policies(state)
        queries = self._queries(state)
        graphs = [
            self._graph(names[0], resource, state, queries.get(names[0], ()), policies)
            for address, resource in sorted(state.resources.items())
            for kind, names in [address_parts(address)]
            if kind == "graph" and names[0] not in self._pending
        ]
        self._check_providers(state)
        self._check_owners(state)
        if self._problems:
            raise not_ready(self._root, self._problems)
        existing = {
            names[0] for kind, names in map(address_parts, state.resources) if kind == "graph"
        }
        return AppliedCluster(
            root=self._location.uri,
            revision=state.state_revision,
            digest=hashlib.sha256(text.encode("utf-8")).hexdigest(),
            graphs=tuple(graph for graph in graphs if graph.graph_id not in self._damaged),
            quarantined={
                name: why
                for name, why in (self._pending | self._damaged).items()
                if name in existing
            },
            server_policy=policies.get(CLUSTER),
            bound=frozenset(
                normal_binding(binding)
                for address, resource in state.resources.items()
                if address_parts(address)[0] == "policy"
                for binding in resource.applies_to or ()
            ),
            warnings=tuple(self._warnings),
        )

    def _problem(self, code: str, path: str, message: str) -> None:
        self._problems.append(ClusterDiagnostic(code, path, message))

    def _payload_problem(self, code: str, path: str, message: str, graphs: Iterable[str]) -> None:
        """Note a damaged text, by which the named graphs cannot be served."""
        concerned = list(graphs)
        if concerned and all(graph in self._live for graph in concerned):
            problem = ClusterDiagnostic(code, path, message)
            self._damaged.update(dict.fromkeys(concerned, problem))
        else:
            self._problem(code, path, message)

    # -- sidecars and ledger ----------------------------------------------------------------

    def _read_sidecars(self) -> None:
        if self._objects is None:
            return
        try:
            names = [name for name in self._objects.list(RECOVERIES) if name.endswith(".json")]
        except StorageError as error:
            self._problem("recovery_sidecar_read_error", RECOVERIES, error.message)
            return
        for name in names:
            path = f"{RECOVERIES}/{name}"
            try:
                sidecar = read_cluster_sidecar(self._objects.read(path), path)
            except LedgerProblem as problem:
                self._problems.append(problem.diagnostic)
            except StorageError as error:
                self._problem("recovery_sidecar_read_error", path, error.message)
            else:
                self._note_pending(sidecar, path)

    def _note_pending(self, sidecar: ClusterSidecar, path: str) -> None:
        if not sidecar.graph_id.strip():
            self._problem(
                "cluster_recovery_unattributed", path, "the sidecar does not name its graph"
            )
            return
        pending = ClusterDiagnostic(
            "cluster_recovery_pending",
            path,
            f"{sidecar.kind} of graph '{sidecar.graph_id}' was interrupted; run cluster apply",
            "warning",
        )
        if sidecar.graph_id not in self._live:
            self._pending[sidecar.graph_id] = pending
        self._warnings.append(pending)

    def _read_ledger(self) -> tuple[str, LedgerState]:
        try:
            if self._objects is None:
                raise StorageMissing("there is no such directory")
            text = self._objects.read(LEDGER)
            return text, read_state(text, LEDGER)
        except StorageMissing:
            self._problem(
                "cluster_state_missing", LEDGER, "there is no ledger; run cluster import and apply"
            )
        except StorageError as error:
            self._problem("state_read_error", LEDGER, error.message)
        except LedgerProblem as problem:
            self._problems.append(problem.diagnostic)
        raise not_ready(self._root, self._problems)

    # -- resources ----------------------------------------------------------------------------

    def _read_texts(self, state: LedgerState) -> None:
        """Read each text that is needed once, many at a time.

        What cannot be read is left out: whoever needs it meets the same error, and notes it.
        """
        wanted: dict[str, str] = {}
        for address, resource in state.resources.items():
            kind, names = address_parts(address)
            is_needed = kind == "policy" or (kind == "query" and names[0] not in self._pending)
            if is_needed and resource.digest not in self._texts:
                wanted.setdefault(resource.digest, payload_path(address, resource.digest))
        digests = list(wanted)
        contents = at_once(
            self._content,
            [wanted[digest] for digest in digests],
            REQUESTS_AT_ONCE,
            is_local=self._location.is_local,
        )
        for digest, content in zip(digests, contents, strict=True):
            if content is not None and content_digest(content) == digest:
                with suppress(UnicodeDecodeError):
                    self._texts[digest] = content.decode("utf-8")

    def _content(self, path: str) -> bytes | None:
        assert self._objects is not None
        try:
            return self._objects.read_bytes(path)
        except OmniGraphError:
            return None

    def _payload(self, address: str, digest: str, graphs: Iterable[str]) -> str:
        """The text of a blob; empty after noting why it cannot be used."""
        text = self._texts.get(digest)
        return self._damaged_payload(address, digest, graphs) if text is None else text

    def _damaged_payload(self, address: str, digest: str, graphs: Iterable[str]) -> str:
        assert self._objects is not None
        path = payload_path(address, digest)
        try:
            content = self._objects.read_bytes(path)
        except StorageMissing:
            code, message = "catalog_payload_missing", f"'{path}' does not exist"
        except OmniGraphError as error:
            code, message = "catalog_payload_read_error", error.message
        else:
            if content_digest(content) != digest:
                code = "catalog_payload_digest_mismatch"
                message = f"the content of '{path}' is not what was applied"
            else:
                try:
                    return content.decode("utf-8")
                except UnicodeDecodeError:
                    code, message = "catalog_payload_read_error", f"'{path}' is not UTF-8 text"
        self._payload_problem(code, address, message, graphs)
        return ""

    def _policies(self, state: LedgerState) -> dict[str, AppliedPolicy]:
        """The policy of each binding that is served."""
        policies: dict[str, AppliedPolicy] = {}
        for address, resource in sorted(state.resources.items()):
            kind, names = address_parts(address)
            if kind != "policy":
                continue
            if not resource.applies_to:
                self._problem(
                    "policy_bindings_missing", address, "the ledger has no bindings for the policy"
                )
                continue
            bindings = tuple(sorted({normal_binding(binding) for binding in resource.applies_to}))
            served = [binding for binding in bindings if self._serves(address, binding, state)]
            if not served:
                continue
            # The policy of the server itself concerns everybody.
            graphs = [] if CLUSTER in served else [name.partition(".")[2] for name in served]
            text = self._payload(address, resource.digest, graphs)
            policy = AppliedPolicy(names[0], text, bindings)
            for binding in served:
                if binding in policies:
                    self._problem(
                        "duplicate_policy_binding",
                        address,
                        f"policy '{policies[binding].name}' is bound to '{binding}' too",
                    )
                policies.setdefault(binding, policy)
        return policies

    def _serves(self, address: str, binding: str, state: LedgerState) -> bool:
        if binding == CLUSTER:
            return True
        parts = parse_address(binding)
        if parts is None or parts[0] != "graph":
            self._problem(
                "wrong_kind_reference", address, f"'{binding}' is neither a graph nor the cluster"
            )
            return False
        if binding not in state.resources:
            self._problem("dangling_graph_reference", address, f"'{binding}' is not in the ledger")
            return False
        return parts[1][0] not in self._pending

    def _queries(self, state: LedgerState) -> Mapping[str, Sequence[AppliedQuery]]:
        """The queries of each graph that is served, sorted by name."""
        queries: dict[str, list[AppliedQuery]] = {}
        for address, query in sorted(state.resources.items()):
            kind, names = address_parts(address)
            if kind != "query" or names[0] in self._pending:
                continue
            if f"graph.{names[0]}" in state.resources:
                text = self._payload(address, query.digest, [names[0]])
                queries.setdefault(names[0], []).append(AppliedQuery(names[1], text))
        return queries

    def _graph(
        self,
        graph: str,
        resource: LedgerResource,
        state: LedgerState,
        queries: Sequence[AppliedQuery],
        policies: Mapping[str, AppliedPolicy],
    ) -> AppliedGraph:
        return AppliedGraph(
            graph,
            graph_uri(self._location.uri, graph),
            tuple(queries),
            policies.get(f"graph.{graph}"),
            self._provider(f"graph.{graph}", resource.embedding_provider, state),
        )

    def _provider(
        self, address: str, provider: str | None, state: LedgerState
    ) -> EmbeddingProfile | None:
        if provider is None:
            return None
        parts = parse_address(provider)
        if parts is None or parts[0] != "provider" or parts[1][0] != "embedding":
            self._problem(
                "wrong_kind_reference", address, f"'{provider}' is not an embedding provider"
            )
            return None
        if provider not in state.resources:
            self._problem(
                "embedding_provider_missing", address, f"'{provider}' is not in the ledger"
            )
            return None
        return state.resources[provider].embedding_profile

    def _check_providers(self, state: LedgerState) -> None:
        for address, resource in sorted(state.resources.items()):
            if address_parts(address)[0] != "provider":
                continue
            profile = resource.embedding_profile
            if profile is None:
                self._problem(
                    "embedding_provider_profile_missing", address, "the ledger has no profile"
                )
            elif profile_digest(profile) != resource.digest:
                self._problem(
                    "embedding_provider_digest_mismatch",
                    address,
                    "the profile is not what was applied",
                )
            elif profile.api_key is not None and key_variable(profile) is None:
                self._problem(
                    "embedding_api_key_inline", address, "api_key must be a variable: ${NAME}"
                )

    def _check_owners(self, state: LedgerState) -> None:
        """Queries and schemas belong to graphs that exist."""
        for address in sorted(state.resources):
            kind, names = address_parts(address)
            if kind in ("query", "schema") and f"graph.{names[0]}" not in state.resources:
                self._problem(
                    "dangling_graph_reference", address, f"'graph.{names[0]}' is not in the ledger"
                )
