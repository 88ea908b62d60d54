"""The names that Lance gives to files of a table, relative to the table."""

from __future__ import annotations

_LAST = 2**64 - 1


def manifest_name(version: int) -> str:
    """The name of a version file in ``_versions``; the newest version is listed first.

    >>> manifest_name(6)
    '18446744073709551609.manifest'
    """
    return f"{_LAST - version:020d}.manifest"


def version_number(name: str) -> int | None:
    """The version of a file in ``_versions``; ``None`` for a detached version and other files.

    >>> version_number("18446744073709551609.manifest"), version_number("d7.manifest")
    (6, None)
    """
    number = name.removesuffix(".manifest")
    if number == name or len(number) != 20 or not number.isdecimal():
        return None
    return _LAST - int(number)


def branch_file(branch: str) -> str:
    """The reference file of a branch; a branch without one does not exist.

    >>> branch_file("team/x")
    '_refs/branches/team%2Fx.json'
    """
    return f"_refs/branches/{branch.replace('/', '%2F')}.json"


def transaction_file(read_version: int, uuid: str) -> str:
    """The file of a transaction."""
    return f"_transactions/{read_version}-{uuid}.txn"
