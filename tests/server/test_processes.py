"""The process model, with real processes, real signals and real kills."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.server.admission import WriteCaps
from omnigraph.server.config import ServerConfig, ServerSource
from omnigraph.server.lifecycle import CannotServe, bind
from tests.server.processes import Answer, ServerUnderTest, is_alive, small_server, until

pytestmark = pytest.mark.rotates(6)

SHAPES = pytest.mark.parametrize("workers", [1, 2])


def who(server: ServerUnderTest) -> dict[str, object]:
    answer: dict[str, object] = server.ask("GET", "/who").json
    return answer


def writer_pid(server: ServerUnderTest) -> int:
    pid: int = server.ask("POST", "/write", b"").json["pid"]
    return pid


def reader_pids(server: ServerUnderTest) -> set[int]:
    return set(server.children()) - {writer_pid(server)}


def refuses(server: ServerUnderTest) -> bool:
    host, _, port = server.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return True
    return False


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two readers and a writer, for tests that leave them as they are."""
    with small_server(tmp_path_factory.mktemp("pair"), workers=2).await_listening() as server:
        yield server


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """One process."""
    with small_server(tmp_path_factory.mktemp("single"), workers=1).await_listening() as server:
        yield server


@pytest.fixture(params=["single", "pair"])
def either(request):
    return request.getfixturevalue(request.param)


# -- start ------------------------------------------------------------------------------------


@SHAPES
def test_a_server_that_cannot_serve_exits_with_1_and_never_listens(tmp_path, workers):
    with small_server(tmp_path, "refuse this", workers=workers) as server:
        assert server.process.wait(60) == 1
        assert "cannot serve 'refuse this'" in server.log
        assert server.process.stdout.read() == b""


def test_a_long_path_of_the_temporary_directory_does_not_matter(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with small_server(tmp_path, workers=2).await_listening() as server:
        assert server.ask("POST", "/write", b"").status == 200
        assert list(long.glob("omnigraph-*")) == []


def test_an_address_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ServerConfig(
            source=ServerSource("store", "x"), bind=f"127.0.0.1:{taken.getsockname()[1]}"
        )
        with pytest.raises(CannotServe, match="cannot bind"):
            bind(config)


def test_reads_are_answered_by_readers_and_writes_by_the_writer(pair):
    assert len(pair.children()) == 3
    assert who(pair)["role"] == "reader"
    assert pair.ask("POST", "/write", b"x").json["role"] == "writer"


def test_the_answer_of_the_writer_has_one_date(pair):
    request = b"POST /write HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx"
    answer = raw(pair, request)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"\r\ndate: ") == 1


def test_one_process_does_everything_without_children(single):
    assert single.children() == []
    assert single.ask("POST", "/write", b"x").json["role"] == "all"


def test_large_and_chunked_bodies_are_forwarded_byte_for_byte(tmp_path, pair):
    body, target = os.urandom(3 << 20), tmp_path / "written"
    assert pair.ask("POST", f"/write?file={target}", body).json["size"] == len(body)
    connection = pair.connect()
    pieces = iter([body[: 1 << 20], body[1 << 20 :]])
    connection.request("POST", f"/write?file={target}", pieces, encode_chunked=True)
    assert connection.getresponse().read()
    connection.close()
    assert target.read_bytes() == body + body


# -- deaths -----------------------------------------------------------------------------------


def test_a_killed_writer_comes_back_and_the_write_in_flight_is_pending(tmp_path):
    started, never = tmp_path / "started", tmp_path / "never"
    with (
        small_server(tmp_path, workers=2).await_listening() as server,
        ThreadPoolExecutor() as pool,
    ):
        first = writer_pid(server)
        path = f"/write?started={started}&until={never}"
        lost = pool.submit(server.ask, "POST", path, b"x")
        keyed = pool.submit(server.ask, "POST", path, b"x", {"Idempotency-Key": "k"})
        until(started.exists)
        until(lambda: "omnigraph_queue" in server.ask("GET", "/metrics").body.decode())
        os.kill(first, signal.SIGKILL)
        killed = time.monotonic()
        # Readers answer meanwhile, and a new write waits for the new writer.
        assert who(server)["role"] == "reader"
        assert server.ask("POST", "/write", b"x").status == 200
        print(f"the writer was back after {time.monotonic() - killed:.2f} s")
        second = writer_pid(server)
        assert second != first
        for answer in (lost.result(), keyed.result()):
            assert answer.status == 503
            assert answer.json["code"] == "outcome_pending"
        assert "same Idempotency-Key" in keyed.result().json["hint"]
        (event,) = server.events("worker ended; it is restarted")
        assert (event["worker"], event["code"]) == ("writer", -signal.SIGKILL)


def test_a_write_that_was_not_sent_completely_can_be_repeated(tmp_path):
    with small_server(tmp_path, workers=2).await_listening() as server:
        pid = writer_pid(server)
        connection = server.connect()
        connection.putrequest("POST", "/write")
        connection.putheader("Content-Length", "10")
        connection.endheaders(b"12345")
        until(lambda: 'forwarded_total{outcome="answered"}' in metrics(server))
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.events("worker is back"))
        response = connection.getresponse()
        body = response.read()
        connection.close()
        assert response.status == 503
        assert b'"server_unavailable"' in body
        assert b'"retryable": true' in body


def test_a_killed_reader_is_replaced_while_another_answers(tmp_path):
    with small_server(tmp_path, workers=2).await_listening() as server:
        victim = reader_pids(server).pop()
        os.kill(victim, signal.SIGKILL)
        for _ in range(20):
            assert who(server)["pid"] != victim
        until(lambda: len(server.children()) == 3)
        until(lambda: server.events("worker is back"))
        assert victim not in server.children()


def test_workers_end_when_their_supervisor_dies(tmp_path):
    with small_server(tmp_path, workers=2).await_listening() as server:
        children = server.children()
        server.process.kill()
        server.process.wait()
        until(lambda: not any(map(is_alive, children)))
        assert refuses(server)


def test_workers_leave_signals_to_the_supervisor(pair):
    children = pair.children()
    for pid in children:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
    assert pair.ask("POST", "/write", b"x").status == 200
    assert pair.children() == children


def test_the_writer_yields_to_the_readers(pair):
    writer = writer_pid(pair)
    niceness = {pid: os.getpriority(os.PRIO_PROCESS, pid) for pid in pair.children()}
    assert {niceness[writer] - niceness[reader] for reader in reader_pids(pair)} == {10}
    # A thread of it that wakes up interrupts no reader.
    policies = {pid: os.sched_getscheduler(pid) for pid in niceness}
    assert policies.pop(writer) == os.SCHED_BATCH
    assert set(policies.values()) == {os.SCHED_OTHER}
    # Niceness has an effect within a session only.
    assert {os.getsid(pid) for pid in niceness} == {os.getsid(pair.process.pid)}
    # The interrupt of a terminal is for the group of the supervisor.
    assert all(os.getpgid(pid) == pid for pid in niceness)


# -- owned writes, cancelled reads --------------------------------------------------------------


@SHAPES
def test_a_write_ends_though_its_client_left_and_the_drain_waits_for_it(tmp_path, workers):
    started, go, target = tmp_path / "started", tmp_path / "go", tmp_path / "target"
    with small_server(tmp_path, workers=workers).await_listening() as server:
        connection = server.connect()
        path = f"/write?started={started}&until={go}&file={target}"
        connection.request("POST", path, b"written")
        until(started.exists)
        connection.close()
        server.send(signal.SIGTERM)
        until(lambda: refuses(server))
        go.touch()
        assert server.process.wait(60) == 0
        assert target.read_bytes() == b"written"


def test_a_read_is_cancelled_when_its_client_leaves(tmp_path, either):
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    connection = either.connect()
    never = tmp_path / "never"
    connection.request("GET", f"/read?started={started}&until={never}&cancelled={cancelled}")
    until(started.exists)
    connection.close()
    until(cancelled.exists)


# -- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_signal_finishes_what_is_in_flight_and_refuses_new_connections(tmp_path, workers, number):
    go = tmp_path / "go"
    with (
        small_server(tmp_path, workers=workers).await_listening() as server,
        ThreadPoolExecutor() as pool,
    ):
        work = []
        for kind, method in (("read", "GET"), ("write", "POST")):
            started = tmp_path / kind
            path = f"/{kind}?started={started}&until={go}"
            work.append(pool.submit(server.ask, method, path))
            until(started.exists)
        idle = server.connect()
        idle.connect()
        server.send(number)
        until(lambda: refuses(server))
        go.touch()
        assert [task.result().status for task in work] == [200, 200]
        assert server.process.wait(60) == 0
        idle.close()


@pytest.mark.parametrize("position", [0, 1])
def test_a_worker_that_died_before_the_signal_is_not_waited_for(tmp_path, position):
    """Whether it is being restarted or back already: it has nothing to finish."""
    with small_server(tmp_path, workers=2).await_listening() as server:
        os.kill(server.children()[position], signal.SIGKILL)
        until(lambda: server.events("worker ended; it is restarted"))
        assert server.stop() == 0
        assert "requests in flight are cut off" not in server.log


@SHAPES
def test_a_drain_is_bounded_and_says_that_it_cut_something_off(tmp_path, workers):
    started, never = tmp_path / "started", tmp_path / "never"
    with (
        small_server(tmp_path, workers=workers, drain_seconds=0.3).await_listening() as server,
        ThreadPoolExecutor() as pool,
    ):
        lost = pool.submit(server.ask, "POST", f"/write?started={started}&until={never}")
        until(started.exists)
        children = server.children()
        assert server.stop() == 2
        assert lost.exception() is not None or lost.result().status == 503
        until(lambda: not any(map(is_alive, children)))


def test_a_second_signal_cuts_off_at_once(tmp_path):
    started, never = tmp_path / "started", tmp_path / "never"
    with (
        small_server(tmp_path, workers=2).await_listening() as server,
        ThreadPoolExecutor() as pool,
    ):
        lost = pool.submit(server.ask, "POST", f"/write?started={started}&until={never}")
        until(started.exists)
        server.send(signal.SIGTERM)
        until(lambda: refuses(server))
        assert server.stop() == 2
        assert lost.exception() is not None or lost.result().status == 503


# -- reloads ----------------------------------------------------------------------------------


def texts(server: ServerUnderTest) -> set[object]:
    """The generation of every process that replies, by pid."""
    replies: dict[object, object] = {}
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda _: who(server), range(40)):
            replies[answer["pid"]] = answer["text"]
    return set(replies.values())


@SHAPES
def test_a_reload_is_in_force_everywhere_when_it_returns(tmp_path, workers):
    with small_server(tmp_path, workers=workers).await_listening() as server:
        for text in ("two", "three"):
            (tmp_path / "generation").write_text(text)
            assert server.ask("POST", "/reload").status == 200
            assert texts(server) == {text}


@SHAPES
def test_a_changed_file_and_a_signal_reload(tmp_path, workers):
    generation = tmp_path / "generation"
    with small_server(tmp_path, workers=workers).await_listening() as server:
        generation.write_text("two")
        until(lambda: texts(server) == {"two"})
        stamp = generation.stat().st_mtime_ns
        generation.write_text("three")
        os.utime(generation, ns=(stamp, stamp))  # unnoticed without the signal
        server.send(signal.SIGHUP)
        until(lambda: texts(server) == {"three"})


@pytest.mark.parametrize(("workers", "text"), [(1, "broken file"), (2, "refuse it")])
def test_a_reload_that_fails_keeps_the_old_state_and_says_so(tmp_path, workers, text):
    """Also if only a worker finds out."""
    with small_server(tmp_path, workers=workers).await_listening() as server:
        (tmp_path / "generation").write_text(text)
        assert server.ask("POST", "/reload").status == 409
        assert texts(server) == {"one"}
        assert server.events("reload failed; the old state stays in force")
        until(lambda: who(server)["failure"] is not None)
        assert "omnigraph_reload_failed 1.0" in metrics(server)
        (tmp_path / "generation").write_text("two")
        assert server.ask("POST", "/reload").status == 200
        assert texts(server) == {"two"}
        assert who(server)["failure"] is None
        assert "omnigraph_reload_failed 0.0" in metrics(server)


def test_a_worker_that_restarts_has_the_newest_generation(tmp_path):
    with small_server(tmp_path, workers=2).await_listening() as server:
        (tmp_path / "generation").write_text("two")
        assert server.ask("POST", "/reload").status == 200
        for pid in server.children():
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(server.events("worker is back")) == 3)
        assert texts(server) == {"two"}


def test_no_request_is_lost_by_reloads(pair):
    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(pair.ask, "GET", "/who") for _ in range(100)]
        replies += [pool.submit(pair.ask, "POST", "/write", b"x") for _ in range(20)]
        for _ in range(5):
            assert pair.ask("POST", "/reload").status == 200
        assert {answer.result().status for answer in replies} == {200}


# -- admission and metrics ----------------------------------------------------------------------


def metrics(server: ServerUnderTest) -> str:
    return server.ask("GET", "/metrics").body.decode()


def value(text: str, name: str) -> float:
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
    )


@pytest.mark.parametrize("workers", [1, 4])
def test_of_32_simultaneous_writes_exactly_16_are_admitted(tmp_path, workers):
    go = tmp_path / "go"
    with (
        small_server(tmp_path, workers=workers, write_caps=WriteCaps(writes=16)) as server,
        ThreadPoolExecutor(32) as pool,
    ):
        server.await_listening()
        work = [pool.submit(server.ask, "POST", f"/write?until={go}", b"x") for _ in range(32)]
        until(lambda: sum(task.done() for task in work) == 16)
        refused = [task.result() for task in work if task.done()]
        go.touch()
        replies: list[Answer] = [task.result() for task in work]
        assert sorted(answer.status for answer in replies) == [200] * 16 + [429] * 16
        assert refused[0].json["message"] == "actor in-flight count cap 16 exceeded"
        # A refused write leaves no trace.
        assert server.ask("POST", "/write", b"x").status == 200


def test_metrics_are_those_of_all_processes_and_survive_a_worker(tmp_path):
    with small_server(tmp_path, workers=2).await_listening() as server:
        for _ in range(20):
            server.ask("GET", "/who")
        text = metrics(server)
        assert value(text, 'omnigraph_http_requests_total{method="GET",route="/who"') == 20
        assert value(text, "omnigraph_worker_up") == 3
        for pid in server.children():
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(server.events("worker is back")) == 3)
        text = metrics(server)
        assert value(text, 'omnigraph_http_requests_total{method="GET",route="/who"') == 20
        assert value(text, "omnigraph_worker_restarts_total") == 3


# -- connections --------------------------------------------------------------------------------


def raw(server: ServerUnderTest, *pieces: bytes) -> bytes:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        received = b""
        while data := connection.recv(65536):
            received += data
    return received


def test_what_is_not_http_gets_a_typed_answer(single):
    answer = raw(single, b"\x00\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer
    head = b"GET /who HTTP/1.1\r\nhost: x\r\n"
    long = [b"x-filler: %b\r\n" % (b"y" * 8000)] * 12
    answer = raw(single, head, *long)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert single.ask("GET", "/who").status == 200


def test_200_connections_are_open_at_once_and_all_are_answered(pair):
    connections = [pair.connect() for _ in range(200)]
    for connection in connections:
        connection.request("GET", "/who")
    pids = []
    for connection in connections:
        response = connection.getresponse()
        assert response.status == 200
        pids.append(response.read())
    for connection in connections:
        connection.close()
    # Both readers got their part.
    assert len(set(pids)) == 2
    fewest = min(pids.count(answer) for answer in set(pids))
    assert fewest >= 40, f"{fewest} of 200 connections went to one of two readers"


def test_nothing_is_left_in_the_directory_for_temporary_files(tmp_path, monkeypatch):
    # A short path: that of a socket is limited.
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        monkeypatch.setenv("TMPDIR", temporary)
        with small_server(tmp_path, workers=2).await_listening() as server:
            assert list(folder.iterdir())
            assert server.stop() == 0
        assert list(folder.iterdir()) == []
