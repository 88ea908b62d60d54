"""A compiled mutation with its parameters, as the write that the protocol runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.commit.protocol import WriteRequest
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import GraphStore
from omnigraph.plan.bind import bind
from omnigraph.plan.nodes import MutationPlan
from omnigraph.write.fingerprint import fingerprint
from omnigraph.write.mutate import Mutation


def mutation_request(
    store: GraphStore,
    contract: Contract,
    plan: MutationPlan,
    params: Mapping[str, Any],
    branch: str | None,
    actor: str | None,
    *,
    if_commit: str | None,
    idempotency_key: str | None,
    allow_local_files: bool = False,
) -> WriteRequest:
    """What is to be committed, and under which conditions."""
    bound = bind(plan, params)
    mutation = Mutation(store, contract.catalog, bound, allow_local_files=allow_local_files)
    return WriteRequest(
        WriterKind.MUTATION,
        branch,
        mutation.touches,
        mutation.prepare,
        mutation.is_strict,
        actor,
        if_commit=if_commit,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint(plan, params) if idempotency_key else None,
        schema_hash=contract.schema_hash,
    )
