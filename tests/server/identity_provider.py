"""An identity provider on a loopback port: keys that rotate, tokens, a count of requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "omnigraph"
SECRET_CLAIM = "claim-3b9f-secret"


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """A key that is made once per process; RSA keys take long."""
    if kind == "RSA":
        return rsa.generate_private_key(65537, 2048)
    if kind == "weak":
        return rsa.generate_private_key(65537, 1024)
    if kind == "EC":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(kind: str, key_id: str | None, number: int = 0, **members: Any) -> dict[str, Any]:
    algorithm: Any = {"EC": ECAlgorithm, "OKP": OKPAlgorithm}.get(kind, RSAAlgorithm)
    entry = json.loads(algorithm.to_jwk(private_key(kind, number).public_key()))
    entry |= {} if key_id is None else {"kid": key_id}
    return {**entry, "use": "sig", **members}


class IdentityProvider:
    """Serves its configuration at the address of OpenID Connect, and its keys at ``/keys``."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [public_jwk("RSA", "rsa-0")]
        self.requests: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler], bool] | None = None
        """Answers a request in another way; returns whether it did."""
        self.may_answer = threading.Event()
        self.may_answer.set()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests.append(self.path)
                provider.may_answer.wait(60)
                if provider.answer is not None and provider.answer(self):
                    return
                document: dict[str, Any] = {"keys": provider.keys}
                if self.path.startswith("/.well-known/"):
                    document = {"issuer": provider.issuer, "jwks_uri": f"{provider.issuer}/keys"}
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def fetches(self) -> int:
        """How often the keys were asked for."""
        return self.requests.count("/keys")

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a valid token; a change to ``None`` leaves one out."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "ana",
            "iat": now,
            "exp": now + 600,
            "groups": ["staff"],
            "note": SECRET_CLAIM,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self,
        *,
        kind: str = "RSA",
        number: int = 0,
        algorithm: str = "RS256",
        key_id: str | None = "rsa-0",
        headers: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """A token; it is valid unless something is changed."""
        head = {**({} if key_id is None else {"kid": key_id}), **(headers or {})}
        claims = self.claims(**changes)
        return jwt.encode(claims, private_key(kind, number), algorithm=algorithm, headers=head)

    def settings_text(self, **changes: str) -> str:
        """The file of a server that accepts its tokens."""
        lines = {
            "version": "1",
            "issuer": self.issuer,
            "audience": AUDIENCE,
            "jwks_url": f"{self.issuer}/keys",
            "claims": "{groups: groups, attributes: {level: level, tenants: tenants}}",
            **changes,
        }
        return "\n".join(f"{name}: {value}" for name, value in lines.items() if value)
