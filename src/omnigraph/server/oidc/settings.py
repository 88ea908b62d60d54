"""The settings of an identity provider, from a YAML file.

A key that means nothing here is refused. The file has no secrets: keys are fetched from the
provider, and only asymmetric algorithms are accepted.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from omnigraph.errors import ServerNotReady
from omnigraph.escaping import escape
from omnigraph.server.oidc.fetching import is_safe_address
from omnigraph.yaml_tree import YamlProblem, YamlValue, parse_yaml

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""What a provider may sign with; symmetric algorithms would make the public key a secret."""
MOST_SKEW = 300
_TOP = ("version", "issuer", "audience", "algorithms", "jwks_url", "clock_skew_seconds", "claims")
_CLAIMS = ("actor", "actor_prefix", "groups", "attributes")
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

ClaimPath = tuple[str, ...]
"""The names that lead to a claim; most claims have one."""


class OidcSettings(msgspec.Struct, frozen=True):
    """Which tokens are accepted, and what their claims mean."""

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...] = ("RS256",)
    jwks_url: str | None = None
    """The address of the keys; the provider's own configuration says it if there is none."""
    skew_seconds: int = 30
    actor: ClaimPath = ("sub",)
    actor_prefix: str = ""
    """Put before the claim, so that actors differ from those of static tokens."""
    groups: ClaimPath | None = None
    attributes: tuple[tuple[str, ClaimPath], ...] = ()

    @property
    def discovery_url(self) -> str:
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"


def read_oidc_file(path: Path) -> OidcSettings:
    """The settings of a file; raises ``ServerNotReady``."""
    label = f"identity provider settings '{escape(str(path))}'"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise ServerNotReady(f"{label}: {reason}") from None
    except ValueError:
        raise ServerNotReady(f"{label}: the file is not UTF-8 text") from None
    try:
        settings = parse_oidc(text)
    except YamlProblem as problem:
        raise ServerNotReady(
            f"{label}, line {problem.line}: {problem.message}",
            hint="docs/deployment.md lists the keys",
        ) from None
    _check_installed()
    return settings


def parse_oidc(text: str) -> OidcSettings:
    """The settings of a YAML text; raises ``YamlProblem``.

    >>> settings = parse_oidc(
    ...     '''
    ... version: 1
    ... issuer: https://id.example.org
    ... audience: omnigraph
    ... claims:
    ...   groups: [realm_access, roles]
    ...   attributes: {tenants: "https://example.org/tenants"}
    ... '''
    ... )
    >>> settings.groups, settings.attributes
    (('realm_access', 'roles'), (('tenants', ('https://example.org/tenants',)),))
    """
    top = parse_yaml(text)
    entries = top.mapping(_TOP)
    version = top.required(entries, "version")
    if version.whole() != 1:
        raise YamlProblem("version must be 1", version.line)
    claims = entries["claims"].mapping(_CLAIMS) if "claims" in entries else {}
    attributes = claims["attributes"].mapping() if "attributes" in claims else {}
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name):
            raise YamlProblem(
                f"invalid attribute '{escape(name)}'; expected letters, digits and '_'", value.line
            )
    return OidcSettings(
        _address(top.required(entries, "issuer")),
        _one_or_more(top.required(entries, "audience")),
        _algorithms(entries["algorithms"]) if "algorithms" in entries else ("RS256",),
        _address(entries["jwks_url"]) if "jwks_url" in entries else None,
        _skew(entries["clock_skew_seconds"]) if "clock_skew_seconds" in entries else 30,
        _one_or_more(claims["actor"]) if "actor" in claims else ("sub",),
        claims["actor_prefix"].text() if "actor_prefix" in claims else "",
        _one_or_more(claims["groups"]) if "groups" in claims else None,
        tuple((name, _one_or_more(value)) for name, value in attributes.items()),
    )


def _address(value: YamlValue) -> str:
    text = value.text()
    if not is_safe_address(text):
        raise YamlProblem(
            f"invalid {value.path} '{escape(text)}'; expected an https address, or http on a "
            "loopback address",
            value.line,
        )
    return text


def _one_or_more(value: YamlValue) -> tuple[str, ...]:
    """A text, or a list of texts."""
    if value.node is not None and value.node.id == "sequence":
        texts = tuple(item.text() for item in value.items())
    else:
        texts = (value.text(),)
    if not texts or not all(text.strip() for text in texts):
        raise YamlProblem(f"{value.path} must not be empty", value.line)
    return texts


def _algorithms(value: YamlValue) -> tuple[str, ...]:
    algorithms = tuple(item.choice(*ALGORITHMS) for item in value.items())
    if not algorithms:
        raise YamlProblem(f"{value.path} must not be empty", value.line)
    return algorithms


def _skew(value: YamlValue) -> int:
    seconds = value.whole()
    if seconds > MOST_SKEW:
        raise YamlProblem(f"{value.path} must be at most {MOST_SKEW}", value.line)
    return seconds


def _check_installed() -> None:
    try:
        import cryptography
        import jwt
    except ImportError:
        raise ServerNotReady(
            "tokens of an identity provider need PyJWT and cryptography, which are not installed",
            hint="install omnigraph with its extra: pip install 'omnigraph[server,oidc]'",
        ) from None
    del cryptography, jwt
