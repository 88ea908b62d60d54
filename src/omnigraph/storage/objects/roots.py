"""Where a graph lives: a directory, or a prefix in a bucket."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from omnigraph.errors import InputError
from omnigraph.storage.objects.graph_paths import refuse_unsafe

_FILE = "file://"
_S3 = "s3://"

# What object stores leave as it is in a path, beside letters and digits.
_PLAIN = "/ !$&'()+,-.:;=@_"
# Lance takes what follows a question mark for the options of an address.
_NO_PATH = re.compile(r"[?\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Root:
    """The root of one graph. ``options`` are storage options and never shown."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_local(self) -> bool:
        return not self.uri.startswith(_S3)

    @property
    def bucket(self) -> str:
        """The bucket of an S3 root."""
        return urlsplit(self.uri).netloc

    @property
    def prefix(self) -> str:
        """The path inside the bucket, without slashes at its ends."""
        return urlsplit(self.uri).path.strip("/")

    def is_missing(self) -> bool:
        """Whether there is surely nothing here: a local directory that does not exist."""
        return self.is_local and not os.path.isdir(self.uri)

    def path(self, *segments: str) -> str:
        """The address of something under the root, as Lance and people read it.

        ``StorageCorrupt`` for a path that could lead out of the root: such a path comes from a
        file that is damaged or forged.

        >>> parse_root("/data/g.omni/").path("nodes", "40d7")
        '/data/g.omni/nodes/40d7'
        """
        for segment in segments:
            refuse_unsafe(segment)
        return "/".join((self.uri, *segments))

    def object_path(self, path: str) -> str:
        """Something under the root as object stores name it: no scheme, no slash in front.

        >>> parse_root("/data/g.omni").object_path("nodes/40d7")
        'data/g.omni/nodes/40d7'
        >>> parse_root("s3://bucket/a").object_path("nodes/40d7")
        'a/nodes/40d7'
        """
        refuse_unsafe(path)
        top = self.uri if self.is_local else self.prefix
        return "/".join(segment for segment in (top.strip("/"), path) if segment)

    def spelled_as_address(self, path: str) -> str:
        """Something under a local root as object stores spell it, some letters as numbers.

        >>> parse_root("/data/a#b").spelled_as_address("nodes")
        '/data/a%23b/nodes'
        """
        return quote(self.path(path), safe=_PLAIN).replace("~", "%7E")


def parse_root(address: str, options: Mapping[str, str] | None = None) -> Root:
    """Read an address: a plain path, ``file://…`` or ``s3://bucket/prefix``.

    A path is made absolute by its text alone: links are not followed, so that a graph keeps the
    name it was given.

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
    """Refuse an address of which a part would be ignored."""
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
    """A graph is a directory: where a file lies, on the way or at its end, there can be none."""
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
