"""Tokens of an identity provider: which are accepted, and how often keys are fetched."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
import pytest

from omnigraph.errors import ServerNotReady, ServerUnavailable
from omnigraph.identity import Identity
from omnigraph.server.authentication import Authentication
from omnigraph.server.oidc import fetching, keys
from omnigraph.server.oidc.settings import ALGORITHMS, OidcSettings, parse_oidc, read_oidc_file
from omnigraph.server.oidc.verifier import OidcVerifier
from omnigraph.server.tokens import LONGEST_TOKEN, TokenTable
from omnigraph.yaml_tree import YamlProblem
from tests.server.identity_provider import (
    AUDIENCE,
    SECRET_CLAIM,
    IdentityProvider,
    private_key,
    public_jwk,
)

HOUR = 3600


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


class Verifying:
    """A verifier, and one event loop for all of its tokens."""

    def __init__(self, settings: OidcSettings, static: dict[str, str] | None = None) -> None:
        self.failures: list[str | None] = []
        self.verifier = OidcVerifier(settings, self.failures.append)
        self.authentication = Authentication(TokenTable(static or {}), self.verifier)
        self._loop = asyncio.Runner()

    def identify(self, token: str) -> Identity | None:
        return self.run(self.authentication.identify(token))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(work)

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def verifying(provider: IdentityProvider) -> Iterator[Verifying]:
    made = Verifying(parse_oidc(provider.settings_text()))
    yield made
    made.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys may be fetched again at once."""
    monkeypatch.setattr(keys, "RENEWAL_SECONDS", 0.0)


# -- what is accepted ------------------------------------------------------------------------------


def test_claims_become_actor_groups_and_attributes(provider, verifying):
    token = provider.token(groups=["staff", "leads"], level=3, tenants=["t1", "t2"], other="x")
    identity = verifying.identify(token)
    assert identity.id == "ana"
    assert identity.groups == {"staff", "leads"}
    assert dict(identity.attributes) == {"level": 3, "tenants": ("t1", "t2")}
    assert verifying.failures == [None]


def test_a_token_is_verified_once_while_it_is_valid(provider, verifying, monkeypatch):
    token = provider.token()
    decoded = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *a, **k: decoded.append(1) or decode(*a, **k))
    first = verifying.identify(token)
    count = len(decoded)
    assert verifying.identify(token) is first
    assert len(decoded) == count
    assert provider.fetches == 1


def test_a_token_that_was_valid_expires(provider, verifying, monkeypatch):
    token = provider.token()
    assert verifying.identify(token) is not None
    later = datetime.now(UTC) + timedelta(hours=1)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return later

    monkeypatch.setattr(time, "time", later.timestamp)
    monkeypatch.setattr("jwt.api_jwt.datetime", Later)
    assert verifying.identify(token) is None


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("RSA", "RS512"), ("RSA", "PS256"), ("EC", "ES256"), ("OKP", "EdDSA")]
)
def test_every_kind_of_key_works(provider, kind, algorithm):
    provider.keys = [public_jwk(kind, "k")]
    made = Verifying(parse_oidc(provider.settings_text(algorithms=f"[{algorithm}]")))
    token = provider.token(kind=kind, algorithm=algorithm, key_id="k")
    assert made.identify(token).id == "ana"
    made.close()


def test_a_token_without_key_id_needs_an_only_key(provider, at_once):
    provider.keys = [public_jwk("RSA", None)]
    made = Verifying(parse_oidc(provider.settings_text()))
    assert made.identify(provider.token(key_id=None)) is not None
    provider.keys = [public_jwk("RSA", "a", 1), public_jwk("RSA", "b")]
    made.verifier._keys._loaded = float("-inf")
    assert made.identify(provider.token(key_id=None, sub="bo")) is None
    made.close()


def test_static_tokens_are_tried_first_and_need_no_provider(provider):
    made = Verifying(parse_oidc(provider.settings_text()), {"bo": "static-token"})
    assert made.identify("static-token").id == "bo"
    assert provider.requests == []
    assert made.identify(provider.token()).id == "ana"
    assert made.identify("static-tokem") is None
    made.close()


def test_the_skew_is_bounded(provider, verifying):
    now = int(time.time())
    assert verifying.identify(provider.token(exp=now - 5)) is not None
    assert verifying.identify(provider.token(exp=now - 60)) is None
    assert verifying.identify(provider.token(nbf=now + 5)) is not None
    assert verifying.identify(provider.token(nbf=now + 60)) is None
    for text in ("clock_skew_seconds: 301", "clock_skew_seconds: -1", "clock_skew_seconds: a"):
        with pytest.raises(YamlProblem):
            parse_oidc(f"{provider.settings_text()}\n{text}")


def test_discovery_finds_the_keys_once(provider, at_once):
    made = Verifying(parse_oidc(provider.settings_text(jwks_url="")))
    assert made.identify(provider.token()).id == "ana"
    provider.keys.append(public_jwk("RSA", "rsa-1", 1))
    assert made.identify(provider.token(key_id="rsa-1", number=1)).id == "ana"
    assert provider.requests == ["/.well-known/openid-configuration", "/keys", "/keys"]
    made.close()


# -- what is refused -------------------------------------------------------------------------------


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(provider: IdentityProvider, **headers: Any) -> str:
    head = {"alg": "none", "typ": "JWT", "kid": "rsa-0", **headers}
    return f"{segment(head)}.{segment(provider.claims())}."


def confused(provider: IdentityProvider, algorithm: str = "HS256") -> str:
    """Signed with the public key as if it were a secret."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    secret = (
        private_key("RSA")
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    head = f"{segment({'alg': algorithm, 'kid': 'rsa-0'})}.{segment(provider.claims())}"
    signature = hmac.new(secret, head.encode(), hashlib.sha256).digest()
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered(provider: IdentityProvider) -> str:
    head, _, signature = provider.token().split(".")
    return f"{head}.{segment(provider.claims(sub='root'))}.{signature}"


BAD_TOKENS: dict[str, Callable[[IdentityProvider], str]] = {
    "alg none": unsigned,
    "alg None": lambda p: unsigned(p, alg="None"),
    "alg nOnE": lambda p: unsigned(p, alg="nOnE"),
    "no alg": lambda p: unsigned(p, alg=None),
    "HS256 with the public key": confused,
    "RS256 named, HS256 made": lambda p: confused(p, "RS256"),
    "another algorithm": lambda p: p.token(algorithm="RS384"),
    "another key": lambda p: p.token(number=1),
    "unknown key id": lambda p: p.token(key_id="nobody"),
    "key id is a list": lambda p: p.token(headers={"kid": "rsa-0"}).replace(
        p.token().split(".")[0], segment({"alg": "RS256", "kid": ["rsa-0"]})
    ),
    "tampered claims": tampered,
    "no signature": lambda p: p.token().rsplit(".", 1)[0] + ".",
    "other issuer": lambda p: p.token(iss="http://127.0.0.1:1"),
    "issuer with a slash": lambda p: p.token(iss=p.issuer + "/"),
    "no issuer": lambda p: p.token(iss=None),
    "other audience": lambda p: p.token(aud="another"),
    "no audience": lambda p: p.token(aud=None),
    "audience in a list of others": lambda p: p.token(aud=["a", "b"]),
    "expired": lambda p: p.token(exp=int(time.time()) - HOUR),
    "no expiry": lambda p: p.token(exp=None),
    "expiry is a text": lambda p: p.token(exp="soon"),
    "endless": lambda p: p.token(exp=float("inf")),
    "expiry beyond floats": lambda p: p.token(exp=10**400),
    "not yet valid": lambda p: p.token(nbf=int(time.time()) + HOUR),
    "from the future": lambda p: p.token(iat=int(time.time()) + HOUR),
    "no subject": lambda p: p.token(sub=None),
    "blank subject": lambda p: p.token(sub="  "),
    "subject is a number": lambda p: _signed(p, {"sub": 7}),
    "subject of the system": lambda p: p.token(sub="omnigraph:recovery"),
    "subject with a line": lambda p: p.token(sub="ana\nbo"),
    "endless subject": lambda p: p.token(sub="a" * 300),
    "critical extension": lambda p: p.token(headers={"crit": ["exp"]}),
    "unencoded payload": lambda p: p.token(headers={"b64": False, "crit": ["b64"]}),
    "key in the header": lambda p: p.token(
        number=1, headers={"jwk": public_jwk("RSA", "rsa-0", 1), "jku": f"{p.issuer}/keys"}
    ),
    "claims are a list": lambda p: _signed(p, ["x"]),
    "nested": lambda p: _signed(p, _nested(400)),
    "huge": lambda p: p.token(pad="x" * LONGEST_TOKEN),
    "huge header": lambda p: p.token(headers={"pad": "x" * 6_000}),
    "five parts": lambda p: p.token() + ".a.b",
    "garbage": lambda p: "a.b.c",
    "binary": lambda p: "\x00.\x01.\x02",
    "dots": lambda p: "." * 100,
    "spaces": lambda p: f" {p.token()}",
    "empty": lambda p: "",
}


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def _signed(provider: IdentityProvider, payload: Any) -> str:
    """Any payload with a good signature."""
    if isinstance(payload, dict):
        payload = provider.claims() | payload
    body = json.dumps(payload).encode()
    return jwt.api_jws.encode(body, private_key("RSA"), "RS256", headers={"kid": "rsa-0"})


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_bad_token_is_refused_with_at_most_one_fetch(provider, verifying, name):
    token = BAD_TOKENS[name](provider)
    for _ in range(5):
        assert verifying.identify(token) is None
    assert provider.fetches <= 1
    # The keys do not belong to bad tokens: a good one is accepted afterwards.
    assert verifying.identify(provider.token()).id == "ana"
    assert provider.fetches == 1


def test_only_a_token_with_everything_but_a_known_key_causes_a_fetch(provider, verifying):
    for name in ("expired", "other issuer", "other audience", "alg none", "garbage", "huge"):
        assert verifying.identify(BAD_TOKENS[name](provider)) is None
    assert provider.requests == []


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(
    "entry",
    [
        public_jwk("RSA", "rsa-0", use="enc"),
        public_jwk("RSA", "rsa-0", key_ops=["encrypt"]),
        public_jwk("RSA", "rsa-0", alg="RS384"),
        public_jwk("RSA", "rsa-0", d="AQAB"),
        public_jwk("weak", "rsa-0"),
        {"kty": "oct", "kid": "rsa-0", "k": "c2VjcmV0"},
        {"kty": "RSA", "kid": "rsa-0", "n": "AQAB"},
        "text",
    ],
)
def test_keys_that_are_not_for_signatures_are_left_out(provider, verifying, entry):
    provider.keys = [entry, public_jwk("RSA", "other", 1)]
    kind = "weak" if entry == public_jwk("weak", "rsa-0") else "RSA"
    assert verifying.identify(provider.token(kind=kind)) is None
    assert verifying.identify(provider.token(number=1, key_id="other")).id == "ana"


def test_claims_of_another_form_only_narrow(provider, verifying):
    token = provider.token(groups=["staff", 7], level={"a": 1}, tenants=["t1", None])
    identity = verifying.identify(token)
    assert (identity.groups, dict(identity.attributes)) == (frozenset(), {})
    single = verifying.identify(provider.token(groups="staff", level=float("nan")))
    assert (single.groups, dict(single.attributes)) == ({"staff"}, {})


# -- keys ------------------------------------------------------------------------------------------


def test_a_rotated_key_is_found_and_a_withdrawn_one_refused(provider, verifying, at_once):
    old = provider.token()
    assert verifying.identify(old) is not None
    provider.keys = [public_jwk("RSA", "rsa-1", 1)]
    assert verifying.identify(provider.token(key_id="rsa-1", number=1)) is not None
    # Remembered tokens are forgotten with the keys that they were signed with.
    assert verifying.identify(old) is None


def test_unknown_key_ids_cause_one_fetch_in_half_a_minute(provider, verifying, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(keys, "monotonic", lambda: clock[0])
    for number in range(20):
        assert verifying.identify(provider.token(key_id=f"unknown-{number}")) is None
    assert provider.fetches == 1
    clock[0] += keys.RENEWAL_SECONDS
    for number in range(20):
        assert verifying.identify(provider.token(key_id=f"unknown-{number}")) is None
    assert provider.fetches == 2


def test_many_tokens_at_once_wait_for_one_fetch(provider, verifying):
    tokens = [provider.token(sub=f"actor {number}") for number in range(30)]

    async def all_at_once() -> list[Identity | None]:
        provider.may_answer.clear()
        waiting = [
            asyncio.ensure_future(verifying.authentication.identify(token)) for token in tokens
        ]
        while not provider.requests:
            await asyncio.sleep(0.005)
        # One of those that wait gives up; the others must not notice.
        waiting[0].cancel()
        provider.may_answer.set()
        return await asyncio.gather(*waiting[1:])

    assert [identity.id for identity in verifying.run(all_at_once())] == [
        f"actor {number}" for number in range(1, 30)
    ]
    assert provider.fetches == 1


def test_old_keys_are_renewed_while_they_are_used_and_then_not_used(
    provider, verifying, monkeypatch
):
    clock = [1000.0]
    monkeypatch.setattr(keys, "monotonic", lambda: clock[0])
    token = provider.token()
    assert verifying.identify(token) is not None
    provider.answer = lambda request: request.send_error(503) is None
    clock[0] += keys.FRESH_SECONDS + 1
    assert verifying.identify(token) is not None

    async def wait() -> None:
        while verifying.verifier._keys._refreshing is not None:
            await asyncio.sleep(0.005)

    verifying.run(wait())
    assert verifying.failures == [None, "status 503"]
    clock[0] += keys.USABLE_SECONDS
    with pytest.raises(ServerUnavailable):
        verifying.identify(token)
    provider.answer = None
    clock[0] += keys.RENEWAL_SECONDS
    assert verifying.identify(token) is not None


def redirect(request: BaseHTTPRequestHandler) -> bool:
    if request.path == "/elsewhere":
        return False
    request.send_response(302)
    request.send_header("Location", "/elsewhere")
    request.end_headers()
    return True


def large(request: BaseHTTPRequestHandler) -> bool:
    request.send_response(200)
    request.end_headers()
    request.wfile.write(b'{"keys": []}' + b" " * (2 * fetching.MOST_BYTES))
    return True


def plain(body: bytes) -> Callable[[BaseHTTPRequestHandler], bool]:
    def answer(request: BaseHTTPRequestHandler) -> bool:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(body)
        return True

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (redirect, "status 302"),
        (large, "more than"),
        (plain(b"<html>"), "not JSON"),
        (plain(b"[" * 100_000), "not JSON"),
        (plain(b"[]"), "not a set of keys"),
        (plain(b'{"keys": []}'), "no usable key"),
        (plain(json.dumps({"keys": [{}] * 101}).encode()), "not a set of keys"),
    ],
)
def test_without_keys_nobody_is_recognised(provider, verifying, answer, reason):
    provider.answer = answer
    for _ in range(3):
        with pytest.raises(ServerUnavailable, match="keys of the identity provider") as refusal:
            verifying.identify(provider.token())
        assert refusal.value.retryable
    assert len(verifying.failures) == 1
    assert reason in verifying.failures[0]
    assert provider.requests == ["/keys"]


def test_a_provider_that_sends_byte_by_byte_is_cut_off(provider, verifying, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SECONDS", 0.3)

    def drip(request: BaseHTTPRequestHandler) -> bool:
        try:
            for _ in range(600):
                request.wfile.write(b"H")
                request.wfile.flush()
                time.sleep(0.1)
        except OSError:
            pass
        return True

    provider.answer = drip
    with pytest.raises(ServerUnavailable):
        verifying.identify(provider.token())
    assert verifying.failures in (["broken"], ["timeout"])


def test_a_provider_that_is_down_is_reported_without_its_texts(verifying, provider):
    settings = parse_oidc(provider.settings_text(jwks_url="http://127.0.0.1:1/keys"))
    made = Verifying(settings)
    with pytest.raises(ServerUnavailable):
        made.identify(provider.token())
    assert made.failures == ["unreachable"]
    made.close()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"issuer": "https://other", "jwks_uri": "https://other/keys"}, "another issuer"),
        ({"jwks_uri": "http://id.example.org/keys"}, "no safe jwks_uri"),
        ({"jwks_uri": "file:///etc/passwd"}, "no safe jwks_uri"),
        ({}, "no safe jwks_uri"),
    ],
)
def test_a_configuration_that_points_elsewhere_is_refused(provider, document, reason):
    body = json.dumps({"issuer": provider.issuer, **document}).encode()
    provider.answer = plain(body)
    made = Verifying(parse_oidc(provider.settings_text(jwks_url="")))
    with pytest.raises(ServerUnavailable):
        made.identify(provider.token())
    assert reason in made.failures[0]
    made.close()


# -- settings --------------------------------------------------------------------------------------

GOOD = "version: 1\nissuer: https://id.example.org\naudience: omnigraph\n"


def test_the_defaults_are_narrow():
    settings = parse_oidc(GOOD)
    assert settings.algorithms == ("RS256",)
    assert settings.actor == ("sub",)
    assert settings.groups is None
    assert settings.discovery_url == "https://id.example.org/.well-known/openid-configuration"
    assert not any(name.startswith("HS") or name == "none" for name in ALGORITHMS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("version: 1", "version: 2"), "version must be 1"),
        (GOOD.replace("https:", "http:"), "expected an https address"),
        (GOOD.replace("https://", "https://user:pass@"), "expected an https address"),
        (GOOD + "jwks_url: http://id.example.org/keys", "expected an https address"),
        (GOOD + "jwks_url: https://id.example.org/keys#a", "expected an https address"),
        (GOOD + "algorithms: [HS256]", "invalid algorithms"),
        (GOOD + "algorithms: [none]", "invalid algorithms"),
        (GOOD + "algorithms: []", "algorithms must not be empty"),
        (GOOD.replace("audience: omnigraph", "audience: []"), "audience must not be empty"),
        (GOOD.replace("audience: omnigraph\n", ""), "missing key 'audience'"),
        (GOOD + "secret: x", "unknown key 'secret'"),
        (GOOD + "claims: {actor: ''}", "claims.actor must not be empty"),
        (GOOD + "claims: {attributes: {a-b: x}}", "invalid attribute 'a-b'"),
        (GOOD + "claims: {role: x}", "unknown key 'claims.role'"),
    ],
)
def test_invalid_settings_are_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "oidc.yaml"
    file.write_text(text)
    with pytest.raises(ServerNotReady, match="line ") as refusal:
        read_oidc_file(file)
    assert message in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ServerNotReady, match="no such file"):
        read_oidc_file(tmp_path / "none.yaml")


def test_nothing_of_a_token_is_kept_or_shown(provider, verifying):
    token = provider.token()
    verifying.identify(token)
    shown = repr(verifying.authentication) + repr(verifying.verifier) + repr(verifying.failures)
    assert AUDIENCE in repr(verifying.verifier.settings)
    assert SECRET_CLAIM not in shown
    assert token not in repr(list(verifying.verifier._verified))
