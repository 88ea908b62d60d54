"""Who acts: the id of an actor with the groups and attributes that came with its credentials.

A leaf that every room may import. What a policy adds to an identity stays in the policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from omnigraph.errors import InputError
from omnigraph.records import dataclass

AttributeAtom = str | int | float | bool
AttributeValue = AttributeAtom | tuple[AttributeAtom, ...]


@dataclass(frozen=True)
class Identity:
    """An actor with its groups and attributes, for example from the claims of a token.

    Values of attributes are texts, numbers, truth values, and lists of them.

    >>> ana = Identity("ana", frozenset({"staff"}), {"tenants": ["t1", "t2"]})
    >>> ana.attributes["tenants"], ana == Identity("ana")
    (('t1', 't2'), False)
    """

    id: str
    groups: frozenset[str] = frozenset()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError("the id of an identity must be a text that is not empty")
        given = {name: _attribute(name, value) for name, value in self.attributes.items()}
        object.__setattr__(self, "groups", frozenset(self.groups))
        object.__setattr__(self, "attributes", MappingProxyType(given))

    @cached_property
    def digest(self) -> str:
        """A digest of everything that a decision about the actor may depend on."""
        attributes = sorted((name, repr(value)) for name, value in self.attributes.items())
        text = repr((self.id, sorted(self.groups), attributes))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Identity, (self.id, self.groups, dict(self.attributes))


def _attribute(name: object, value: Any) -> AttributeValue:
    if not isinstance(name, str):
        raise InputError(f"the name of an attribute must be a text, not {type(name).__name__}")
    if isinstance(value, list | tuple | set | frozenset):
        items = value if isinstance(value, list | tuple) else sorted(value, key=repr)
        if all(isinstance(item, AttributeAtom) for item in items):
            return tuple(items)
    elif isinstance(value, AttributeAtom):
        return value
    raise InputError(
        f"attribute '{name}' must be a text, a number, a truth value or a list of them, "
        f"not {type(value).__name__}"
    )


def key_of_actor(actor: str, key: str) -> str:
    """An idempotency key as it is stored: the keys of one actor are unknown to the others.

    >>> key_of_actor("ana", "b/c"), key_of_actor("ana/b", "c")
    ('ana/b/c', 'ana%2Fb/c')
    """
    return f"{actor.replace('%', '%25').replace('/', '%2F')}/{key}"
