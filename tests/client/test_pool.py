"""Connections that are kept: when they are used again, and when a request is sent again."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from omnigraph.client import http
from omnigraph.client.http import Failure, HttpPool, NoResponse, send
from tests.client.stub import DROP, Stub, stub_server


@pytest.fixture
def server():
    with stub_server() as stub:
        stub.responses["GET /x"] = {"ok": True}
        stub.responses["POST /x"] = {"ok": True}
        yield stub


@pytest.fixture
def pool():
    pool = HttpPool()
    yield pool
    pool.close()


def until(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def close_kept(pool: HttpPool) -> None:
    """The server's side of every kept connection is closed, and the news has arrived."""
    for entries in pool._idle.values():
        for _, connection in entries:
            connection._wire.sock.shutdown(socket.SHUT_WR)
            until(lambda kept=connection: not kept.is_usable())


def test_requests_share_a_connection(pool, server):
    for method, body in (("GET", None), ("POST", b"{}"), ("GET", None)):
        assert pool.send(method, f"{server.url}/x", {}, body).json() == {"ok": True}
    assert len(set(server.connections)) == 1


def test_an_error_keeps_the_connection(pool, server):
    assert pool.send("GET", f"{server.url}/no", {}).status == 404
    assert pool.send("GET", f"{server.url}/x", {}).status == 200
    assert len(set(server.connections)) == 1


def test_a_response_that_is_not_read_gives_its_connection_up(pool, server):
    server.responses["GET /big"] = b"x" * 1_000_000
    with pool.open("GET", f"{server.url}/big", {}) as answer:
        assert answer.read(10)
    pool.send("GET", f"{server.url}/x", {})
    assert len(set(server.connections)) == 2


def test_one_request_alone_keeps_nothing(server):
    for _ in range(2):
        assert send("GET", f"{server.url}/x", {}).is_ok
    assert len(set(server.connections)) == 2


def test_a_connection_that_the_server_closed_is_not_used(pool, server):
    pool.send("GET", f"{server.url}/x", {})
    close_kept(pool)
    assert pool.send("POST", f"{server.url}/x", {}, b"{}", changes=True).is_ok
    assert len(server.requests) == 2
    assert len(set(server.connections)) == 2


def test_a_change_is_sent_on_a_fresh_connection_only(pool, server, monkeypatch):
    pool.send("GET", f"{server.url}/x", {})
    monkeypatch.setattr(http, "_FRESH", 0.0)
    pool.send("POST", f"{server.url}/x", {}, b"{}", changes=True)
    assert len(set(server.connections)) == 2


def test_a_read_is_sent_again_if_a_kept_connection_ends(pool, server):
    pool.send("GET", f"{server.url}/x", {})
    planned = iter([DROP, {"ok": True}])
    server.responses["GET /x"] = lambda _: next(planned)
    assert pool.send("GET", f"{server.url}/x", {}, changes=False).is_ok
    assert server.requested == ["GET /x"] * 3


def test_a_change_is_never_sent_twice(pool, server):
    pool.send("GET", f"{server.url}/x", {})
    server.responses["POST /x"] = DROP
    with pytest.raises(NoResponse) as caught:
        pool.send("POST", f"{server.url}/x", {}, b"{}", changes=True)
    assert caught.value.failure is Failure.BROKEN
    assert server.requested == ["GET /x", "POST /x"]


def test_a_new_connection_that_ends_is_not_tried_again(pool, server):
    server.responses["GET /x"] = DROP
    with pytest.raises(NoResponse):
        pool.send("GET", f"{server.url}/x", {}, changes=False)
    assert server.requested == ["GET /x"]


def test_a_body_is_streamed_in_chunks(pool, server):
    pieces = iter([b"one\n", b"", b"two\n"])
    headers = {"Content-Type": "application/x-ndjson"}
    assert pool.send("POST", f"{server.url}/x", headers, (p for p in pieces if p)).is_ok
    assert server.requests[0].body == b"one\ntwo\n"
    assert server.requests[0].headers["Transfer-Encoding"] == "chunked"


def test_a_body_that_fails_ends_the_request(pool, server):
    def pieces():
        yield b"one"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        pool.send("POST", f"{server.url}/x", {}, pieces())
    assert pool.send("GET", f"{server.url}/x", {}).is_ok


def test_a_refusal_is_read_though_the_body_was_not_sent_to_its_end(pool):
    """A server that answers after the head, and reads no further."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(
                    b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
                )
                connection.shutdown(socket.SHUT_WR)
                # The client stops sending once it has seen the response or the end.
                while connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/load"
        response = pool.send("POST", url, {}, (b"x" * 65_536 for _ in range(50)))
        thread.join()
    assert (response.status, response.body) == (413, b"big")


def test_a_response_is_read_piece_by_piece(pool, server):
    server.responses["GET /big"] = b"x" * 300_000
    with pool.open("GET", f"{server.url}/big", {}) as answer:
        sizes = [len(piece) for piece in answer]
    assert sum(sizes) == 300_000
    assert max(sizes) <= 1 << 16
    assert answer.closed


def test_a_response_that_is_cut_is_no_response(pool, server):
    server.responses["GET /cut"] = (200, b"abc", {}, 100)
    with pytest.raises(NoResponse) as caught:
        pool.send("GET", f"{server.url}/cut", {})
    assert caught.value.failure is Failure.BROKEN


def test_a_response_larger_than_accepted_is_refused(pool, server):
    server.responses["GET /big"] = b"x" * 300_000
    with pytest.raises(NoResponse) as caught:
        pool.send("GET", f"{server.url}/big", {}, max_bytes=1000)
    assert caught.value.failure is Failure.TOO_LARGE


def test_a_server_that_does_not_answer_in_time(pool):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(NoResponse) as caught:
            pool.send("GET", url, {}, timeout=0.05)
    assert caught.value.failure is Failure.TIMEOUT


def test_threads_do_not_share_a_connection_at_once(pool, server):
    arrived = threading.Barrier(4)

    def wait(_: Stub):
        arrived.wait(10)
        return {"ok": True}

    server.responses["GET /wait"] = wait
    threads = [
        threading.Thread(target=pool.send, args=("GET", f"{server.url}/wait", {})) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(server.connections)) == 4


def test_a_closed_pool_keeps_nothing(server):
    pool = HttpPool()
    pool.send("GET", f"{server.url}/x", {})
    pool.close()
    pool.send("GET", f"{server.url}/x", {})
    assert not any(pool._idle.values())


# -- proxies --------------------------------------------------------------------------------------


def test_a_proxy_of_the_system_gets_the_whole_address(pool, server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://me:p%40ss@"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.responses["GET http://far.invalid:8080/x?a=1"] = {"ok": True}
    assert pool.send("GET", "http://far.invalid:8080/x?a=1", {}).is_ok
    assert server.requests[0].headers["Proxy-Authorization"] == "Basic bWU6cEBzcw=="
    assert server.requests[0].headers["Host"] == "far.invalid:8080"


def test_a_host_beside_the_proxy_is_asked_directly(pool, server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert pool.send("GET", f"{server.url}/x", {}).is_ok
    assert "Proxy-Authorization" not in server.requests[0].headers


def test_a_proxy_that_refuses_a_tunnel_is_no_way_to_the_server(pool, server, monkeypatch):
    monkeypatch.setenv("https_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(NoResponse) as caught:
        pool.send("GET", "https://far.invalid/x", {"Authorization": "Bearer secret"})
    assert caught.value.failure is Failure.UNREACHABLE
    assert server.requests == []
