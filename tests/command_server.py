"""The ``omnigraph`` command for scripts, without the second that a fresh interpreter takes.

``commands_in`` gives a directory for the search path. The program in it hands its arguments,
streams, directory and environment to a server, which forks a process that is the command. The
server has imported what commands need and used nothing of it; see ``fork_server``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.zygote import ENVIRONMENT
from tests.fork_server import ROOT, preload

STREAMS = (0, 1, 2)

PROGRAM = """\
#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"."], [0, 1, 2])
server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
server.shutdown(socket.SHUT_WR)
code = server.recv(16)
sys.exit(int(code) if code else 137)
"""


@contextmanager
def commands_in(folder: Path) -> Iterator[Path]:
    """A directory with the command, as long as the server of it runs."""
    address = str(folder / "server")
    program = folder / "bin" / "omnigraph"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, address=address), "utf-8")
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", str(listening.fileno())],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            pass_fds=[listening.fileno()],
        )
    try:
        yield program.parent
    finally:
        server.kill()
        server.wait()


def serve(listening: socket.socket) -> None:
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the commands here
    while True:
        client, _ = listening.accept()
        with client:
            if not os.fork():
                listening.close()
                run(client)


def run(client: socket.socket) -> None:
    """Be the command that a client asks for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(client, 1, len(STREAMS))
    with client.makefile("rb") as requested:
        arguments, folder, environment = json.load(requested)
    for stream, here in zip(streams, STREAMS, strict=True):
        os.dup2(stream, here)
        os.close(stream)
    # What is known of the server's own streams does not hold for these.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["omnigraph", *arguments]
    code = 1
    try:
        from omnigraph.cli import main

        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        client.send(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
