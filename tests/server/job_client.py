"""What tests of jobs share: loads that are jobs, and waiting for the end of one."""

from __future__ import annotations

from typing import Any

from tests.server.processes import until
from tests.server.serving import Client, ndjson

NDJSON = {"Content-Type": "application/x-ndjson"}
ASYNC = {**NDJSON, "Prefer": "respond-async"}


def people(*names: str) -> bytes:
    return ndjson([{"type": "Person", "data": {"name": name}} for name in names]).encode()


def ended(client: Client, job_id: str) -> dict[str, Any]:
    """A job after its end."""

    def look() -> Any:
        job = client.get(f"/jobs/{job_id}").ok()
        return job if job["status"] in ("succeeded", "failed", "cancelled") else None

    job: dict[str, Any] = until(look, f"job {job_id}")
    return job
