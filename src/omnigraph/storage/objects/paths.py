"""The root of a graph, the forms of paths below it, and the refusal of links.

Lists of files are read from storage: points of backups, sidecars, cleanup intents, checksum
records, rows of the manifest, version files of Lance. An attacker who can write one of these files
could name anything there, so a path from such a list is used only in one of the forms below. All
forms are relative and plain ASCII. ``refuse_unsafe`` is the last line of defence: no address is
built from a path that could leave its root.

The root itself may be reached through links. Below it a link could make a copy read, or a removal
delete, files outside the graph, so links are refused. Directories that are swapped while a command
runs are not detected.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote, unquote, urlsplit

from omnigraph.errors import InputError, StorageCorrupt
from omnigraph.records import dataclass

_LONGEST = 1024
"""The limit of S3 for the key of an object; it applies to paths on local disk as well."""
_SHOWN = 120
_LAST_VERSION = 2**64 - 1
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}

# Segments "." and ".." are refused separately, which keeps these patterns fast.
_SEGMENT = r"[A-Za-z0-9._-]{1,255}"
_BRANCH = rf"{_SEGMENT}(?:/{_SEGMENT})*"
_ENCODED_BRANCH = rf"{_SEGMENT}(?:%2F{_SEGMENT})*"
_LOCATION = r"(?:nodes|edges)/[A-Za-z0-9_-]{1,255}"
_TABLE = rf"(?:{_LOCATION}|__manifest|_graph_commit_recoveries\.lance)"
_COPY = rf"{_TABLE}(?:/tree/{_BRANCH})?"
_REFERENCE = rf"_refs/(?:branches|tags)/{_ENCODED_BRANCH}\.json"
# The files of a copy of a table; those of blobs and indexes are one or two directories deeper.
_INSIDE = (
    r"(?:(?:data|_deletions|_indices|_versions|_transactions)/"
    rf"{_SEGMENT}(?:/{_SEGMENT}){{0,2}}|{_REFERENCE})"
)
# The schema and the record of removed versions: the files that belong to no table.
OTHER_COPIED_FILES = frozenset(
    {"_schema.pg", "_schema.ir.json", "__schema_state.json", "__history/removed.json"}
)


def _form(pattern: str) -> Callable[[object], bool]:
    """A predicate for paths that match a pattern.

    >>> is_branch("review/2026-05"), is_branch("../main"), is_branch("a//b")
    (True, False, False)
    >>> is_table_file("nodes/40d7/tree/a/b/data/x.lance"), is_table_file("nodes/40d7/../x/data/y")
    (True, False)
    """
    form: re.Pattern[str] | None = None

    def matches(path: object) -> bool:
        nonlocal form
        if form is None:
            # At the first use: a process uses few of these patterns.
            form = re.compile(pattern)
        return (
            isinstance(path, str)
            and len(path) <= _LONGEST
            and ".." not in path
            and form.fullmatch(path) is not None
            and "/./" not in f"/{path.replace('%2F', '/').removesuffix('.json')}/"
        )

    return matches


is_branch = _form(_BRANCH)
is_location = _form(_LOCATION)
"""Whether a path can be that of the table of a type."""
is_table = _form(_TABLE)
"""Whether a path can be that of any table: of a type, the manifest, the audit."""
is_copy = _form(_COPY)
"""Whether a path can be the directory of a table or of a branch's copy of it."""
is_table_file = _form(rf"{_COPY}/{_INSIDE}")
"""Whether a path can be a file of a table, relative to the root of the graph."""
is_file_in_copy = _form(_INSIDE)
"""Whether a path can be a file of a copy of a table, relative to that copy."""
_is_removable = _form(
    rf"(?:data|_deletions|_indices|_transactions)/{_SEGMENT}(?:/{_SEGMENT}){{0,2}}"
)
_is_reference_name = _form(rf"{_ENCODED_BRANCH}\.json")


def is_removable_file(path: object, copy: str) -> bool:
    """Whether a path can be a file that is removed with versions of one copy of a table.

    >>> is_removable_file("nodes/40d7/data/x.lance", "nodes/40d7")
    True
    >>> is_removable_file("nodes/40d7/tree/b/data/x.lance", "nodes/40d7")
    False
    """
    if not isinstance(path, str) or not path.startswith(f"{copy}/"):
        return False
    return _is_removable(path[len(copy) + 1 :]) and len(path) <= _LONGEST


def is_copied_file(path: object) -> bool:
    """Whether a path can be a file that backups and clones take along."""
    return is_table_file(path) or (isinstance(path, str) and path in OTHER_COPIED_FILES)


def version_file(version: int) -> str:
    """The file of a version, named so that the newest version is listed first.

    >>> version_file(6)
    '_versions/18446744073709551609.manifest'
    """
    return f"_versions/{_LAST_VERSION - version:020d}.manifest"


def version_number(name: str) -> int | None:
    """The version of a file in ``_versions``; ``None`` for a detached version and other files.

    >>> version_number("18446744073709551609.manifest"), version_number("d7.manifest")
    (6, None)
    """
    number = name.removesuffix(".manifest")
    if number == name or len(number) != 20 or not number.isdecimal():
        return None
    return _LAST_VERSION - int(number)


BRANCHES = "_refs/branches"
"""The folder of the branch references of a table."""


def branch_file(branch: str) -> str:
    """The reference file of a branch; a branch without one does not exist.

    >>> branch_file("team/x")
    '_refs/branches/team%2Fx.json'
    """
    return f"{BRANCHES}/{branch.replace('/', '%2F')}.json"


def transaction_file(read_version: int, uuid: str) -> str:
    return f"_transactions/{read_version}-{uuid}.txn"


def branch_of_reference(name: str) -> str:
    """The branch of a file in ``_refs/branches``; slashes are encoded in its name.

    >>> branch_of_reference("team%2Fx.json")
    'team/x'
    """
    if not _is_reference_name(name):
        raise refused(name, "the directory of branch references")
    return name.removesuffix(".json").replace("%2F", "/")


def escaped(path: object) -> str:
    """A path for messages: control characters escaped, and truncated if long.

    >>> print(escaped("../x\\n"))
    '../x\\n'
    """
    text = ascii(path if isinstance(path, str) else type(path).__name__)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def refused(path: object, source: str, hint: str | None = None) -> StorageCorrupt:
    """The error for an invalid path read from storage."""
    return StorageCorrupt(
        f"{source} names {escaped(path)}, which is not a path inside a graph",
        hint=hint
        or "the file is damaged or forged: do not use this graph until you know "
        "which, or restore it from a trusted backup",
        details={"path": escaped(path), "source": source},
    )


@lru_cache(1024)
def refuse_unsafe(path: str) -> None:
    """Refuse a path that could leave its root.

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
        raise refused(path, "a list of files")


OnLink = Callable[[str], None]


def refuse_link(path: str) -> NoReturn:
    raise StorageCorrupt(
        f"{escaped(path)} is a symbolic link or a special file, and only the root may be a link",
        hint="replace it with the directory or file it points to, or remove it",
        details={"path": escaped(path)},
    )


def refuse_links(top: str, path: str) -> None:
    """Refuse a path below a directory when one of its segments is a link."""
    refuse_unsafe(path)
    at = top
    for segment in path.split("/") if path else ():
        at = f"{at}/{segment}"
        try:
            mode = os.lstat(at).st_mode
        except OSError:
            # A missing path is reported by the caller that uses it.
            return
        if stat.S_ISLNK(mode):
            refuse_link(at[len(top) + 1 :])


def walk(
    top: str, path: str = "", on_link: OnLink = refuse_link
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file at any depth below a directory; ``on_link`` gets links and special files."""
    try:
        refuse_links(top, path)
    except StorageCorrupt:
        on_link(path)
        return
    waiting = [f"{top}/{path}" if path else top]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                children = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in children:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path[len(top) + 1 :], entry
            elif os.path.lexists(entry.path):
                on_link(entry.path[len(top) + 1 :])


_FILE = "file://"
_S3 = "s3://"

# Characters that object stores do not encode in a path, besides letters and digits.
_PLAIN = "/ !$&'()+,-.:;=@_"
# Lance parses what follows a question mark as options.
_NO_PATH = re.compile(r"[?\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Root:
    """The root of one graph. ``options`` are storage options; they are never shown."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_local: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_local", not self.uri.startswith(_S3))

    @property
    def bucket(self) -> str:
        return urlsplit(self.uri).netloc

    @property
    def prefix(self) -> str:
        """The path inside the bucket, without leading and trailing slashes."""
        return urlsplit(self.uri).path.strip("/")

    def is_missing(self) -> bool:
        """Whether the root is a local directory that does not exist."""
        if not self.is_local:
            return False
        try:
            return not stat.S_ISDIR(os.stat(self.uri).st_mode)
        except ValueError:
            return True
        except OSError as error:
            if error.errno in _ABSENT:
                return True
            from omnigraph.storage.objects.failures import translate

            raise translate(error, "open", self.uri) from error

    def path(self, *segments: str) -> str:
        """The address of a path under the root, as Lance and users write it.

        Raises ``StorageCorrupt`` for a path that could leave the root: it comes from a damaged or
        forged file.

        >>> parse_root("/data/g.omni/").path("nodes", "40d7")
        '/data/g.omni/nodes/40d7'
        """
        for segment in segments:
            refuse_unsafe(segment)
        return "/".join((self.uri, *segments))

    def object_path(self, path: str) -> str:
        """The object key of a path under the root: no scheme, no leading slash.

        >>> parse_root("/data/g.omni").object_path("nodes/40d7")
        'data/g.omni/nodes/40d7'
        >>> parse_root("s3://bucket/a").object_path("nodes/40d7")
        'a/nodes/40d7'
        """
        refuse_unsafe(path)
        top = self.uri if self.is_local else self.prefix
        return "/".join(segment for segment in (top.strip("/"), path) if segment)

    def spelled_as_address(self, path: str) -> str:
        """The address of a path under a local root, percent-encoded as object stores do.

        >>> parse_root("/data/a#b").spelled_as_address("nodes")
        '/data/a%23b/nodes'
        """
        return quote(self.path(path), safe=_PLAIN).replace("~", "%7E")


def parse_root(address: str, options: Mapping[str, str] | None = None) -> Root:
    """Parse an address: a plain path, ``file://…`` or ``s3://bucket/prefix``.

    A path is made absolute without resolving links, so that a graph keeps the name it was given.

    >>> parse_root("file:///data/g.omni").uri, parse_root("s3://bucket/a/b/").uri
    ('/data/g.omni', 's3://bucket/a/b')
    """
    if not address or "\0" in address:
        raise InputError("the address of a graph cannot be empty", hint="pass a path or s3://…")
    given = dict(options or {})
    if address.startswith((_S3, _FILE)):
        _refuse_cut(address)
    if address.startswith(_S3):
        url = urlsplit(address)
        if not url.netloc:
            raise InputError(f"'{address}' has no bucket", hint="write s3://bucket/prefix")
        prefix = url.path.strip("/")
        return Root(f"{_S3}{url.netloc}" + (f"/{prefix}" if prefix else ""), given)
    if address.startswith(_FILE):
        address = unquote(urlsplit(address).path)
    elif "://" in address:
        scheme = address.split("://", 1)[0]
        raise InputError(
            f"'{scheme}://' is not a storage address", hint="use a path, file:// or s3://"
        )
    path = os.path.abspath(address)
    if _NO_PATH.search(path):
        raise InputError(
            f"invalid path {path!r}: Lance supports neither '?' nor control characters",
            hint="choose another path",
        )
    return Root(path.rstrip("/") or "/", given)


def _refuse_cut(address: str) -> None:
    """Refuse an address with a query or fragment, which would be ignored."""
    url = urlsplit(address)
    if "?" in address or "#" in address:
        raise InputError(
            f"invalid address '{address}': '?' and '#' are not allowed",
            hint="write '#' as %23 in file://, or pass a plain path",
        )
    if address.startswith(_FILE) and (url.netloc not in ("", "localhost") or not url.path):
        raise InputError(
            f"invalid address '{address}': expected a path on this machine",
            hint="write file:/// followed by the absolute path",
        )


def refuse_a_file(root: Root) -> None:
    """Refuse a root that is a file, or that is below a file."""
    if not root.is_local:
        return
    path = root.uri
    while path and not os.path.isdir(path):
        # Checked again, because the directory may just have been created.
        if os.path.lexists(path) and not os.path.isdir(path):
            raise InputError(
                f"'{path}' is a file, and a graph is a directory", hint="choose another path"
            )
        path = os.path.dirname(path)
