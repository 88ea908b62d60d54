"""A provider on the loopback interface that answers what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Provider:
    """What was asked, and what is answered: the last answer is repeated."""

    url: str = ""
    responses: list[Any] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def texts(self) -> list[str]:
        """Every text that was sent, in the words of OpenAI."""
        return [text for _, _, body in list(self.requests) for text in body["input"]]

    def answer(self, body: Any) -> Any:
        step = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        return step(body) if callable(step) else step


class Hang:
    """No answer until the test is over."""


class Drop:
    """The connection is closed without an answer."""

    def __repr__(self) -> str:
        return "no answer"


@contextmanager
def provider(*responses: Any) -> Iterator[Provider]:
    state = Provider(responses=list(responses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append((self.path, dict(self.headers), body))
            with state.lock:
                answer = state.answer(body)
            if isinstance(answer, Hang):
                state.released.wait()
                return
            if isinstance(answer, Drop):
                self.close_connection = True
                return
            status, content, *headers = answer if isinstance(answer, tuple) else (200, answer)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", f"{state.url}/elsewhere")
            for name, value in headers[0].items() if headers else ():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def openai(vector: Callable[[str, int], list[float]]) -> Callable[[Any], Any]:
    """An answer in the words of OpenAI, the vectors in reverse order."""

    def answer(body: Any) -> Any:
        data = [
            {"index": position, "embedding": vector(text, body["dimensions"])}
            for position, text in enumerate(body["input"])
        ]
        tokens = sum(map(len, body["input"]))
        return {"data": data[::-1], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}

    return answer


def refusing(word: str, good: Callable[[Any], Any], status: int = 400) -> Callable[[Any], Any]:
    """Refuses every request that has a text with some word in it."""

    def answer(body: Any) -> Any:
        return (status, {}) if any(word in text for text in body["input"]) else good(body)

    return answer


def gemini(vector: Callable[[str, int], list[float]]) -> Callable[[Any], Any]:
    """An answer in the words of Gemini."""

    def answer(body: Any) -> Any:
        text = body["content"]["parts"][0]["text"]
        return {"embedding": {"values": vector(text, body["outputDimensionality"])}}

    return answer


def gemini_batch(vector: Callable[[str, int], list[float]]) -> Callable[[Any], Any]:
    """An answer of Gemini to many texts at once."""
    one = gemini(vector)

    def answer(body: Any) -> Any:
        return {"embeddings": [one(request)["embedding"] for request in body["requests"]]}

    return answer
