"""Symbolic links below the root of a graph or a backup on local disk: never followed.

The root itself may be reached through links. Below it every directory is one and every file is one:
a link there could make a copy read, or a removal delete, what lies elsewhere. Directories that
are exchanged while a command runs are not detected.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NoReturn

from omnigraph.errors import StorageCorrupt
from omnigraph.storage.objects.graph_paths import escaped, refuse_unsafe

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
            # A missing path leads nowhere; the caller reports it when using it.
            return
        if stat.S_ISLNK(mode):
            refuse_link(at[len(top) + 1 :])


def no_follow(path: str, flags: int) -> int:
    """How ``open`` opens a file that must not be a link."""
    return os.open(path, flags | os.O_NOFOLLOW)


def names_in(top: str, path: str) -> list[str]:
    """The names of the regular files directly in a directory of a root; links are refused."""
    refuse_links(top, path)
    names = []
    with os.scandir(f"{top}/{path}") as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            elif entry.is_symlink():
                refuse_link(f"{path}/{entry.name}" if path else entry.name)
    return names


def walk(
    top: str, path: str = "", on_link: OnLink = refuse_link
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every regular file at any depth below a directory of a root, in no order.

    Links and special files are passed to ``on_link``, which raises by default.
    """
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
