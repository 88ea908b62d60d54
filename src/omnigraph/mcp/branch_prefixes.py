"""Where agents may write: prefixes of branch names, by patterns of the names of actors."""

from __future__ import annotations

import re
from typing import TypeAlias

from omnigraph.errors import InputError
from omnigraph.policy.patterns import BranchNames

PrefixRules: TypeAlias = tuple[tuple[str, str], ...]
"""Patterns of actors, and prefixes in which ``{actor}`` is the name of the actor."""

_ACTOR = "{actor}"
_ANONYMOUS = "anonymous"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def parse_prefixes(text: str) -> PrefixRules:
    """Rules such as ``bot-*=agents/{actor}/``, with spaces between them.

    >>> parse_prefixes("bot-*=agents/{actor}/ ci=builds/")
    (('bot-*', 'agents/{actor}/'), ('ci', 'builds/'))
    """
    rules = []
    for rule in text.split():
        pattern, equals, prefix = rule.partition("=")
        if not (pattern and equals and prefix):
            raise InputError(
                f"invalid rule for the branches of agents '{rule}'",
                hint="write PATTERN=PREFIX, for example 'bot-*=agents/{actor}/'",
            )
        rules.append((pattern, prefix))
    return tuple(rules)


def prefix_for(rules: PrefixRules, actor: str | None) -> str | None:
    """The prefix of an actor by the first rule that matches; ``None`` if it may write anywhere.

    >>> rules = parse_prefixes("bot-*=agents/{actor}/ ci=builds/")
    >>> prefix_for(rules, "bot-1"), prefix_for(rules, "ci"), prefix_for(rules, "ana")
    ('agents/bot-1/', 'builds/', None)
    """
    name = actor or _ANONYMOUS
    for pattern, prefix in rules:
        if BranchNames((pattern,)).contain(name):
            return prefix.replace(_ACTOR, branch_segment(name))
    return None


def branch_segment(actor: str) -> str:
    """The name of an actor as one segment of a branch name; different actors have different ones.

    >>> branch_segment("agent-1"), branch_segment("a/b"), branch_segment("ana@example.org")
    ('agent-1', 'a.2fb', 'ana.40example.2eorg')
    """
    return _UNSAFE.sub(lambda match: "".join(f".{byte:02x}" for byte in match[0].encode()), actor)
