"""Records of deployments on a disk that fails: the apply and its answer do not depend on them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omnigraph.cluster.deployments import DEPLOYMENTS
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.sent_bundle import files_to_send, received_bundle
from omnigraph.errors import StorageError, StorageFull
from omnigraph.server import deploying
from omnigraph.server.config import LogOptions
from omnigraph.server.deploying import Deployer
from omnigraph.server.request_log import RequestLog
from omnigraph.storage.objects.local import LocalObjects
from tests.cluster.lab import DUE_DATES, WIDER, Lab
from tests.server.processes import until

CODES = pytest.mark.parametrize(
    ("code", "error"), [(errno.EIO, StorageError), (errno.ENOSPC, StorageFull)]
)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "lab").applied()
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    return lab


class Reloads:
    """The reloads that a deployer asked for."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def reloads() -> Reloads:
    return Reloads()


@pytest.fixture
def deployer(lab: Lab, reloads: Reloads) -> Deployer:
    def state() -> Any:
        return SimpleNamespace(revision=lab.state["state_revision"], kept={})

    log = RequestLog(LogOptions(level="error", descriptor=os.open(os.devnull, os.O_WRONLY)))
    return Deployer(str(lab.directory), lab.settings, log, reloads, state)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, range], list[str]]:
    """Let writes of records fail, by their number; returns the paths of those that failed."""

    def install(code: int, numbers: range) -> list[str]:
        real, failed, seen = LocalObjects.put, [], iter(range(1_000))

        def put(self: LocalObjects, path: str, data: bytes, **options: Any) -> None:
            if path.startswith(DEPLOYMENTS) and next(seen) in numbers:
                failed.append(path)
                raise OSError(code, os.strerror(code))
            real(self, path, data, **options)

        monkeypatch.setattr(LocalObjects, "put", put)
        return failed

    return install


def bundle_of(lab: Lab) -> Any:
    log = DiagnosticLog()
    return received_bundle("sent", files_to_send(lab.bundle, str(lab.directory), log))


@CODES
def test_nothing_is_applied_that_cannot_be_recorded(
    lab: Lab, deployer: Deployer, reloads: Reloads, refuse: Any, code: int, error: type[Exception]
) -> None:
    before = lab.state
    refuse(code, range(1))
    with pytest.raises(error):
        deployer.apply(bundle_of(lab), "ana", None)
    assert (lab.state, reloads.count, deployer.records.newest(10)) == (before, 0, [])
    assert deployer.apply(bundle_of(lab), "ana", None).outcome == "converged"


@CODES
@pytest.mark.parametrize("numbers", [range(1, 2), range(2, 3), range(1, 4)])
def test_what_was_applied_is_in_force_and_recorded_as_soon_as_possible(
    lab: Lab,
    deployer: Deployer,
    reloads: Reloads,
    refuse: Any,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: type[Exception],
    numbers: range,
) -> None:
    monkeypatch.setattr(deploying, "_AGAIN_SECONDS", 0.05)
    revision = lab.state["state_revision"]
    failed = refuse(code, numbers)
    deployment = deployer.apply(bundle_of(lab), "ana", None)
    assert (deployment.outcome, deployment.in_force, reloads.count) == ("converged", True, 1)
    assert lab.state["state_revision"] > revision
    until(lambda: deployer.records.read(deployment.id) == deployment, "the record")
    assert len(failed) == len(numbers)


def test_a_damaged_record_is_no_deployment(lab: Lab, deployer: Deployer) -> None:
    whole = deployer.apply(bundle_of(lab), "ana", None)
    folder = lab.directory / DEPLOYMENTS
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").write_bytes(b"\xff\xfe")
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAW.json").write_text('{"version": 1')
    assert [record.id for record in deployer.records.newest(10)] == [whole.id]
    assert deployer.records.read("01ARZ3NDEKTSV4RRFFQ69G5FAV") is None
