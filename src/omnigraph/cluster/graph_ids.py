"""The ids of graphs: what a server can address."""

from __future__ import annotations

import re

LONGEST = 64
RESERVED = frozenset({"policies", "healthz", "openapi", "graphs", "readyz", "metrics"})
"""Words that mean something else in an address."""

_FORM = re.compile(r"[A-Za-z0-9-]{1,64}")


def is_graph_id(text: str) -> bool:
    """Whether a graph of this id can be addressed.

    >>> is_graph_id("kb"), is_graph_id("my_kb"), is_graph_id("graphs"), is_graph_id("x" * 65)
    (True, False, False, False)
    """
    return _FORM.fullmatch(text) is not None and text not in RESERVED
