"""The paths that a graph of format 4, and a backup of one, can hold.

Lists of files are read from storage: points of backups, sidecars, cleanup intents, checksum
records, rows of the manifest, version files of Lance. An attacker who can write one of these
files could name anything there, so a path from such a list is used only in one of the forms below.
All of them are relative and of plain ASCII letters. ``refuse_unsafe`` is the last line: no address
is made of a path that could lead out of its root.
"""

from __future__ import annotations

import re
from typing import NoReturn

from omnigraph.errors import StorageCorrupt

_LONGEST = 1024
"""The limit of S3 for the name of an object; it applies to paths on local disk as well."""
_SHOWN = 120

# Segments "." and ".." are refused apart from these, which makes them quick.
_SEGMENT = r"[A-Za-z0-9._-]{1,255}"
_BRANCH = rf"{_SEGMENT}(?:/{_SEGMENT})*"
_ENCODED_BRANCH = rf"{_SEGMENT}(?:%2F{_SEGMENT})*"
_LOCATION = r"(?:nodes|edges)/[A-Za-z0-9_-]{1,255}"
_TABLE = rf"(?:{_LOCATION}|__manifest|_graph_commit_recoveries\.lance)"
_COPY = rf"{_TABLE}(?:/tree/{_BRANCH})?"
_REFERENCE = rf"_refs/(?:branches|tags)/{_ENCODED_BRANCH}\.json"
# The files of a copy of a table; those of blobs and indexes lie one directory deeper, or two.
_INSIDE = (
    r"(?:(?:data|_deletions|_indices|_versions|_transactions)/"
    rf"{_SEGMENT}(?:/{_SEGMENT}){{0,2}}|{_REFERENCE})"
)
_REMOVABLE = rf"(?:data|_deletions|_indices|_transactions)/{_SEGMENT}(?:/{_SEGMENT}){{0,2}}"

_IS_BRANCH = re.compile(_BRANCH)
_IS_LOCATION = re.compile(_LOCATION)
_IS_TABLE = re.compile(_TABLE)
_IS_COPY = re.compile(_COPY)
_IS_TABLE_FILE = re.compile(rf"{_COPY}/{_INSIDE}")
_IS_INSIDE = re.compile(_INSIDE)
_IS_REMOVABLE = re.compile(_REMOVABLE)
_IS_REFERENCE_NAME = re.compile(rf"{_ENCODED_BRANCH}\.json")

# The schema and the record of removed versions: the files of a graph that are no table's.
OTHER_COPIED_FILES = frozenset(
    {"_schema.pg", "_schema.ir.json", "__schema_state.json", "__history/removed.json"}
)


def _matches(form: re.Pattern[str], path: object) -> bool:
    return (
        isinstance(path, str)
        and len(path) <= _LONGEST
        and ".." not in path
        and form.fullmatch(path) is not None
        and "/./" not in f"/{path.replace('%2F', '/').removesuffix('.json')}/"
    )


def is_branch(name: object) -> bool:
    """Whether a name can be that of a branch.

    >>> is_branch("review/2026-05"), is_branch("../main"), is_branch("a//b")
    (True, False, False)
    """
    return _matches(_IS_BRANCH, name)


def is_location(path: object) -> bool:
    """Whether a path can be that of the table of a type.

    >>> is_location("nodes/40d76f1f51639ec0"), is_location("nodes/..")
    (True, False)
    """
    return _matches(_IS_LOCATION, path)


def is_table(path: object) -> bool:
    """Whether a path can be that of any table: of a type, the manifest, the audit."""
    return _matches(_IS_TABLE, path)


def is_copy(path: object) -> bool:
    """Whether a path can be the directory of a table or of a branch's copy of it."""
    return _matches(_IS_COPY, path)


def is_table_file(path: object) -> bool:
    """Whether a path can be a file of a table, relative to the root of the graph.

    >>> is_table_file("nodes/40d7/tree/a/b/data/x.lance"), is_table_file("nodes/40d7/../x/data/y")
    (True, False)
    """
    return _matches(_IS_TABLE_FILE, path)


def is_file_in_copy(path: object) -> bool:
    """Whether a path can be a file of a copy of a table, relative to that copy."""
    return _matches(_IS_INSIDE, path)


def is_removable_file(path: object, copy: str) -> bool:
    """Whether a path can be a file that is removed with versions of one copy of a table.

    >>> is_removable_file("nodes/40d7/data/x.lance", "nodes/40d7")
    True
    >>> is_removable_file("nodes/40d7/tree/b/data/x.lance", "nodes/40d7")
    False
    """
    if not isinstance(path, str) or not path.startswith(f"{copy}/"):
        return False
    return _matches(_IS_REMOVABLE, path[len(copy) + 1 :]) and len(path) <= _LONGEST


def is_copied_file(path: object) -> bool:
    """Whether a path can be a file that backups and clones take along."""
    return is_table_file(path) or (isinstance(path, str) and path in OTHER_COPIED_FILES)


def branch_of_reference(name: str) -> str:
    """The branch that a file in ``_refs/branches`` is about; slashes are encoded in its name.

    >>> branch_of_reference("team%2Fx.json")
    'team/x'
    """
    if not _matches(_IS_REFERENCE_NAME, name):
        refuse(name, "the directory of branch references")
    return name.removesuffix(".json").replace("%2F", "/")


def escaped(path: object) -> str:
    """A path as messages show it: plain letters, and not too many of them.

    >>> print(escaped("../x\\n"))
    '../x\\n'
    """
    text = ascii(path if isinstance(path, str) else type(path).__name__)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def refused(path: object, source: str, hint: str | None = None) -> StorageCorrupt:
    """The error for a path from storage that no graph has."""
    return StorageCorrupt(
        f"{source} names {escaped(path)}, which is not a path inside a graph",
        hint=hint
        or "the file is damaged or forged: do not use this graph until you know "
        "which, or restore it from a trusted backup",
        details={"path": escaped(path), "source": source},
    )


def refuse(path: object, source: str) -> NoReturn:
    raise refused(path, source)


def refuse_unsafe(path: str) -> None:
    """Refuse a path that could lead out of the root that it is relative to.

    >>> refuse_unsafe("nodes/40d7/data/x.lance")
    >>> refuse_unsafe("../x")
    Traceback (most recent call last):
    omnigraph.errors.StorageCorrupt: a list of files names '../x', which is not a path inside a...
    """
    if not path:
        return
    inside = f"/{path}/"
    if (
        "//" in inside
        or "/./" in inside
        or "/../" in inside
        or "\\" in path
        or not path.isprintable()
        or len(path) > 4 * _LONGEST
    ):
        refuse(path, "a list of files")
