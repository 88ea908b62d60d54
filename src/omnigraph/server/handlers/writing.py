"""Writes of a graph: mutations, loads, schema changes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import IO, Any

from msgspec import UNSET

from omnigraph.commit.names import normal_branch
from omnigraph.commit.receipts import LoadReceipt, Receipt
from omnigraph.errors import BranchNotFound, InputError, OmniGraphError, PolicyDenied
from omnigraph.identity import key_of_actor
from omnigraph.progress import OnProgress
from omnigraph.records import dataclass
from omnigraph.server.bodies import SpooledBody
from omnigraph.server.calls import Call, Headers, Reply
from omnigraph.server.errors import RequestRefused
from omnigraph.server.handlers.jobs import run_on_spark, runs_on_spark, start_job
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.handlers.states import rights_of
from omnigraph.server.jobs.process_work import LoadWork
from omnigraph.server.jobs.running import RunningJob
from omnigraph.server.models.requests import IngestRequest, LoadParameters, SchemaApplyRequest
from omnigraph.server.models.responses import (
    ChangeOutput,
    CommitOutput,
    IngestOutput,
    IngestTableOutput,
    LoadedTypeOutput,
    LoadOutput,
    ReceiptOutput,
    SchemaApplyOutput,
)
from omnigraph.server.request_log import WARNING
from omnigraph.server.switching import COMMIT
from omnigraph.write.load.job import LoadMode

IF_COMMIT = "omnigraph-if-graph-commit"
IDEMPOTENCY_KEY = "idempotency-key"
_LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class WriteConditions:
    """What a write requires of the history of its branch."""

    if_commit: str | None
    idempotency_key: str | None


def conditions_of(call: Call) -> WriteConditions:
    """The conditions in the headers of a request."""
    if_commit = call.headers.one(IF_COMMIT)
    if call.route.is_conditional and not if_commit:
        raise RequestRefused(
            400,
            "missing_precondition",
            "header 'Omnigraph-If-Graph-Commit' is required",
            hint="name the commit that the branch must be at",
        )
    key = call.headers.one(IDEMPOTENCY_KEY)
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise RequestRefused(
            400,
            "bad_idempotency_key",
            f"header 'Idempotency-Key' must have 1 to {_LONGEST_KEY} characters",
        )
    if key is not None and call.actor is not None:
        key = key_of_actor(call.actor, key)
    return WriteConditions(if_commit or None, key)


# -- mutations -------------------------------------------------------------------------------


def authorize_change(call: Call) -> None:
    """A mutation needs ``change`` on its branch."""
    call.require("change", call.body.branch or MAIN)


def mutate(call: Call) -> Reply:
    """Run a query that writes."""
    request = call.body
    return run_change(call, request.text, request.chosen, request.params, request.branch)


def change(call: Call) -> Reply:
    """Run a query that writes; the response is that of 0.8."""
    request = call.body
    return run_change(
        call, request.text, request.chosen, request.params, request.branch, is_frozen=True
    )


def run_change(
    call: Call,
    text: str,
    name: str | None,
    params: Any,
    branch: str | None,
    *,
    is_frozen: bool = False,
) -> Reply:
    """Commit a mutation."""
    conditions = conditions_of(call)
    mutation = call.graph.prepare_mutation(text, name)
    receipt = mutation(
        params,
        branch or MAIN,
        if_commit=conditions.if_commit,
        idempotency_key=conditions.idempotency_key,
    )
    return change_reply(call, mutation.name, receipt, is_frozen=is_frozen)


def change_reply(call: Call, name: str, receipt: Receipt, *, is_frozen: bool = False) -> Reply:
    """The answer of a mutation."""
    output = ChangeOutput(
        receipt.branch,
        name,
        receipt.affected_nodes,
        receipt.affected_edges,
        receipt.actor,
        UNSET if is_frozen else commit_output(call, receipt.commit_id),
        UNSET if is_frozen else ReceiptOutput.of(receipt),
    )
    return Reply.json(output, headers=commit_headers(call, receipt))


def commit_output(call: Call, commit_id: str | None) -> CommitOutput | None:
    """The commit of a write; ``None`` if it made none."""
    if commit_id is None:
        return None
    return CommitOutput.of(rights_of(call).shown(call.graph.commit(commit_id)))


def commit_headers(call: Call, receipt: Receipt) -> Headers:
    """Names the commit, so that the client can ask any reader to include it."""
    return note_commit(call, receipt.commit_id)


def note_commit(call: Call, commit_id: str | None) -> Headers:
    if commit_id is None:
        return ()
    call.process.metrics.commit(call.graph_id)
    return ((COMMIT, commit_id),)


# -- loads -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the rows of a load go."""

    branch: str
    base: str | None
    mode: LoadMode


def _target(request: IngestRequest | LoadParameters) -> _Target:
    return _Target(request.branch or MAIN, request.from_, request.mode or LoadMode.MERGE)


def _target_of(call: Call) -> _Target:
    is_raw = isinstance(call.body, bytes | SpooledBody)
    return _target(call.query if is_raw else call.body)


def authorize_load(call: Call) -> None:
    """A load needs ``change`` on its branch; the fork of a missing one is checked by the load."""
    target = _target_of(call)
    denied = call.allows("change", target.branch)
    if denied is not None:
        # The name of a branch to create is the client's own.
        raise call.concealed(denied, target.branch if target.base is None else None)


def explain_denied_load(call: Call, denied: PolicyDenied) -> None:
    """Whoever may read the graph learns that the branch does not exist."""
    target = _target_of(call)
    if target.base is None and call.allows("read", target.branch) is None:
        try:
            call.graph.snapshot(target.branch)
        except BranchNotFound as error:
            raise _unknown_branch(target.branch) from error
    raise denied


def load(call: Call) -> Reply:
    """Load lines of JSON."""
    return _ingest(call, is_frozen=False)


def ingest(call: Call) -> Reply:
    """Load lines of JSON; the response is that of 0.8."""
    return _ingest(call, is_frozen=True)


def _ingest(call: Call, *, is_frozen: bool) -> Reply:
    request: IngestRequest = call.body
    data = io.BytesIO(request.data.encode("utf-8", "surrogatepass"))
    receipt = _run_load(call, partial(_load_here, call, data))
    output = IngestOutput(
        call.uri,
        receipt.branch,
        request.from_,
        receipt.branch_created,
        _target(request).mode,
        [IngestTableOutput(key, counts.affected) for key, counts in sorted(receipt.tables.items())],
        receipt.actor,
        UNSET if is_frozen else commit_output(call, receipt.commit_id),
        UNSET if is_frozen else ReceiptOutput.of(receipt),
    )
    return Reply.json(output, headers=commit_headers(call, receipt))


def load_ndjson(call: Call) -> Reply:
    """Load the lines of the body; as a job, if the client prefers not to wait."""
    is_on_spark = runs_on_spark(call.query.engine)
    if not isinstance(call.body, SpooledBody):
        if is_on_spark:
            raise InputError("a load on Spark is a job", hint="send `Prefer: respond-async`")
        receipt = _run_load(call, partial(_load_here, call, io.BytesIO(call.body)))
        return Reply.json(_load_output(call, receipt), headers=commit_headers(call, receipt))
    target, body = _target_of(call), call.body
    conditions_of(call)
    if is_on_spark:
        _refuse_far_spark(call)

    def work(job: RunningJob) -> LoadOutput:
        if is_on_spark:
            run: _RunLoad = partial(_load_on_spark, call, body, job)
        else:
            run = partial(_load_here, call, body.file, on_progress=job.on_progress)
        return _load_output(call, _run_load(call, run))

    options = {"mode": target.mode.value, "from": target.base, "bytes": body.size}
    options |= {"engine": "spark"} if is_on_spark else {}
    reply = start_job(call, "load", target.branch, options, work, body.file.close)
    body.is_taken = True
    return reply


def _load_output(call: Call, receipt: LoadReceipt) -> LoadOutput:
    loaded: dict[str, list[LoadedTypeOutput]] = {"node": [], "edge": []}
    for key, counts in sorted(receipt.tables.items()):
        kind, _, name = key.partition(":")
        loaded[kind].append(LoadedTypeOutput(name, counts.affected))
    return LoadOutput(
        call.uri,
        receipt.branch,
        call.query.from_,
        receipt.branch_created,
        _target(call.query).mode,
        loaded["node"],
        loaded["edge"],
        sum(rows.entities_loaded for kind in loaded.values() for rows in kind),
        receipt.actor,
        commit_output(call, receipt.commit_id),
        ReceiptOutput.of(receipt),
        _build_indexes(call, receipt) if call.query.indexes else UNSET,
    )


def _build_indexes(call: Call, receipt: LoadReceipt) -> int:
    """Build the missing indexes after a load; a failure does not change the answer of the load."""
    if receipt.commit_id is None or receipt.dry_run:
        return 0
    from omnigraph.maintain.optimize.indexes import ensure_indexes

    handle = call.graph._handle
    branch = normal_branch(receipt.branch)
    try:
        # A part of the load, so the right to change the branch is enough.
        report = ensure_indexes(handle.store, handle.write().catalog, branch, call.actor)
    except OmniGraphError as error:
        call.process.log.event(
            "indexes of a load were not built",
            level=WARNING,
            request_id=call.request_id,
            graph=call.graph_id,
            error=error.message,
        )
        return 0
    return len(report.built)


_RunLoad = Callable[[_Target, dict[str, Any]], LoadReceipt]
"""Loads the body to a target, with options of ``Graph.load``."""


def _load_here(
    call: Call,
    data: IO[bytes],
    target: _Target,
    options: dict[str, Any],
    on_progress: OnProgress | None = None,
) -> LoadReceipt:
    return call.graph.load(
        data,
        target.mode,
        target.branch,
        target.base,
        format="ndjson",
        engine="local",
        **options,
        on_progress=on_progress,
    )


def _load_on_spark(
    call: Call, body: SpooledBody, job: RunningJob, target: _Target, options: dict[str, Any]
) -> LoadReceipt:
    # The file has no name, but every process of this user can open it here while the job runs.
    path = f"/proc/{os.getpid()}/fd/{body.file.fileno()}"
    work = LoadWork(path, target.mode, target.branch, target.base, options)
    receipt: LoadReceipt = run_on_spark(call, job, work)
    return receipt


def _refuse_far_spark(call: Call) -> None:
    """The body is a file of this machine, which workers elsewhere cannot read."""
    from omnigraph.spark import SparkConfig

    if not SparkConfig.from_options(call.graph._handle.settings.spark_options()).is_local:
        raise InputError(
            "this server runs Spark on other machines, which cannot read the body of a request",
            hint="leave out the engine, or load the files where Spark can read them",
        )


def _run_load(call: Call, run: _RunLoad) -> LoadReceipt:
    target, conditions = _target_of(call), conditions_of(call)
    denied = None
    if target.base is not None:
        # Without this right the load may still write to a branch that exists.
        denied = call.allows("branch_create", target.base, target.branch)
    options = {
        **_checks(call.query),
        "if_commit": conditions.if_commit,
        "idempotency_key": conditions.idempotency_key,
    }
    try:
        return run(target if denied is None else replace(target, base=None), options)
    except BranchNotFound as error:
        if denied is not None:
            raise denied from error
        if target.base is None:
            raise _unknown_branch(target.branch) from error
        raise


def _checks(given: LoadParameters | None) -> dict[str, Any]:
    """The options of a load that only the query string has."""
    if given is None:
        return {}
    return {
        "dry_run": given.dry_run,
        "strict_properties": given.strict_properties,
        "max_rejects": given.max_rejects,
    }


def _unknown_branch(branch: str) -> BranchNotFound:
    return BranchNotFound(
        f"branch '{branch}' not found; pass `from` to create it", details={"branch": branch}
    )


# -- the schema ------------------------------------------------------------------------------


def authorize_schema_apply(call: Call) -> None:
    """A schema is applied to main; that of a cluster only by the cluster's own command."""
    request: SchemaApplyRequest = call.body
    if request.dry_run:
        # It only reads, as a plan does.
        call.require("read")
        return
    call.require("schema_apply", None, MAIN)
    if call.state.is_cluster:
        raise RequestRefused(
            409,
            "schema_managed_by_cluster",
            "the schema of this graph is managed by its cluster: change it with "
            "`omnigraph cluster apply` and restart the server",
        )


def _may_know_query(call: Call, name: str) -> bool:
    """A stored query looks absent to those who may neither invoke it nor change the schema."""
    allowed = call.allows("invoke_query", query=name) is None
    return allowed or call.allows("schema_apply", None, MAIN) is None


def apply_schema(call: Call) -> Reply:
    """Change the schema of a graph that belongs to no cluster, or preview that."""
    request: SchemaApplyRequest = call.body
    applied = call.graph.schema.apply(
        request.schema_source,
        allow_data_loss=request.allow_data_loss or False,
        allow_broken_queries=request.allow_broken_queries or False,
        values=request.values,
        dry_run=request.dry_run or False,
    )
    violations = applied.to_json()["violations"]
    for name in () if request.dry_run else applied.broken_queries:
        call.process.log.event(
            "stored query broken",
            level=WARNING,
            request_id=call.request_id,
            graph=call.graph_id,
            query=name,
        )
    output = SchemaApplyOutput(
        call.uri,
        applied.supported,
        applied.applied,
        len(applied.steps),
        applied.manifest_version,
        [step.to_json() for step in applied.steps],
        applied.commit_id,
        list(applied.cleared),
        [name for name in applied.broken_queries if _may_know_query(call, name)],
        violations if request.dry_run else UNSET,
    )
    return Reply.json(output, headers=note_commit(call, applied.commit_id))
