"""The texts of applied queries and policies: blobs named by their digests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from omnigraph.cluster.at_once import REQUESTS_AT_ONCE, at_once
from omnigraph.cluster.desired import DesiredResource
from omnigraph.cluster.diagnostics import ClusterStop, DiagnosticLog
from omnigraph.cluster.draft import LedgerDraft
from omnigraph.cluster.ledger import LedgerState, ResourceStatus
from omnigraph.cluster.lock import LockGuard
from omnigraph.cluster.resources import address_parts, content_digest
from omnigraph.cluster.storage import CONTROL, ClusterStorage
from omnigraph.errors import OmniGraphError, StorageError, StorageMissing
from omnigraph.records import dataclass

PAYLOAD_KINDS = ("query", "policy")


def payload_path(address: str, digest: str) -> str:
    """Where the text of a query or a policy is stored.

    >>> payload_path("query.kb.due", "ab")
    '__cluster/resources/query/kb/due/ab.gq'
    """
    kind, names = address_parts(address)
    suffix = "gq" if kind == "query" else "yaml"
    return f"{CONTROL}/resources/{kind}/{'/'.join(names)}/{digest}.{suffix}"


def publish_payload(storage: ClusterStorage, guard: LockGuard, resource: DesiredResource) -> None:
    """Write a blob unless it exists with the right content; raises ``ClusterStop``."""
    content = resource.content
    assert content is not None
    path = payload_path(resource.address, resource.digest)
    if content_digest(content) != resource.digest:
        raise ClusterStop(
            "resource_content_changed", resource.address, "the file changed since it was checked"
        )
    try:
        if _is_intact(storage, path, resource.digest):
            return
        guard.check()
        storage.objects.write(path, content.decode("utf-8"))
    except StorageError as error:
        raise ClusterStop(
            "resource_payload_write_error", resource.address, error.message
        ) from error


def _is_intact(storage: ClusterStorage, path: str, digest: str) -> bool:
    try:
        return content_digest(storage.objects.read_bytes(path)) == digest
    except StorageMissing:
        return False


@dataclass(frozen=True, slots=True)
class PayloadFinding:
    """A blob that is not what the ledger says."""

    address: str
    condition: str
    """``payload_missing``, ``payload_mismatch`` or ``payload_read_error``."""
    message: str


def check_payloads(storage: ClusterStorage, state: LedgerState) -> Iterator[PayloadFinding]:
    """Compare every blob of the ledger with its digest."""
    blobs = [
        (address, resource.digest)
        for address, resource in sorted(state.resources.items())
        if address_parts(address)[0] in PAYLOAD_KINDS
    ]
    look = partial(_look_at_payload, storage)
    is_local = storage.location.is_local
    for finding in at_once(look, blobs, REQUESTS_AT_ONCE, is_local=is_local):
        if finding is not None:
            yield finding


def _look_at_payload(storage: ClusterStorage, blob: tuple[str, str]) -> PayloadFinding | None:
    address, digest = blob
    path = payload_path(address, digest)
    try:
        if content_digest(storage.objects.read_bytes(path)) == digest:
            return None
        message = f"the content of '{path}' is not what was applied"
        return PayloadFinding(address, "payload_mismatch", message)
    except StorageMissing:
        return PayloadFinding(address, "payload_missing", f"'{path}' does not exist")
    except OmniGraphError as error:
        return PayloadFinding(address, "payload_read_error", error.message)


def report_payloads(
    storage: ClusterStorage, state: LedgerState, log: DiagnosticLog
) -> list[PayloadFinding]:
    """Check all blobs and note what is wrong with them."""
    findings = list(check_payloads(storage, state))
    for finding in findings:
        note = log.error if finding.condition == "payload_read_error" else log.warning
        note(f"catalog_{finding.condition}", finding.address, finding.message)
    return findings


def drop_damaged(draft: LedgerDraft, findings: list[PayloadFinding]) -> None:
    """Forget the digests of damaged blobs, so that the next apply publishes them again."""
    for finding in findings:
        if finding.condition == "payload_read_error":
            status = ResourceStatus("error", (finding.condition,), finding.message)
        else:
            draft.resources.pop(finding.address, None)
            status = ResourceStatus("drifted", (finding.condition,), finding.message)
        draft.statuses[finding.address] = status
