"""Version files with a flipped bit: the answer is right, or the error names the file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import StorageCorrupt
from omnigraph.storage.lance_format.manifests import (
    VERSION,
    manifest_message,
    message_span,
    parse_version,
    read_fields,
)
from tests.faults.damaged_reads import DAMAGED, Case
from tests.faults.damaged_versions import BRANCH, make, responses
from tests.faults.test_damaged_reads import Server, made_by
from tests.rotation import in_turn, rotation, sample

pytestmark = pytest.mark.rotates(6)

QUICK = 7
"""So many bits a quick run flips, others each day."""
DAYS = 15
"""In so many days a slow run comes to every byte. Sixteen would flip the same bits only."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return made_by(make, tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="module")
def server(made: Path):
    server = Server(made, "damaged_versions")
    yield server
    server.close()


@pytest.fixture(scope="module")
def right(server: Server) -> dict[str, Any]:
    return server.ask(None)


@pytest.fixture
def path(made: Path) -> Path:
    """The graph at its place, as it was made."""
    actual = made.with_name(DAMAGED)
    shutil.rmtree(actual, ignore_errors=True)
    shutil.copytree(made, actual)
    return actual


def version_files(made: Path) -> list[str]:
    """The newest version files of the manifest and of a table, on main and on the branch."""
    folders = [made / "__manifest", *made.glob("nodes/*")]
    copies = [copy for folder in folders for copy in (folder, folder / "tree" / BRANCH)]
    # Lance counts down.
    newest = [min((copy / "_versions").glob("*.manifest")) for copy in copies]
    return [str(file.relative_to(made)) for file in newest]


def cases(made: Path) -> list[Case]:
    """Each byte of these files with one of its bits, another each day."""
    return [
        Case(name, f"bit {(at + rotation()) % 8}", at)
        for name in version_files(made)
        for at in range((made / name).stat().st_size)
    ]


def check(actual: dict[str, Any], right: dict[str, Any], case: Case) -> None:
    """Nothing is answered wrongly, and every refusal names the file."""
    for name, answer in actual.items():
        if name == "verify":
            assert answer == [case.file], (case, name)
        elif answer != right.get(name, "nothing that can be read"):
            assert answer[0] == "storage_corrupt", (case, name, answer)
            assert answer[1].endswith(case.file), (case, name, answer)


def test_an_undamaged_graph_is_read_and_written(right: dict[str, Any]):
    assert right["verify"] == []
    assert len(right["read main all"]) == 29
    assert all("storage" not in str(answer) for answer in right.values()), right


def test_a_flipped_bit_in_a_version_file_is_named(server: Server, right: dict[str, Any]):
    for case in sample(cases(server.made), QUICK, "flipped bits"):
        check(server.ask(case), right, case)


@pytest.mark.slow
def test_every_byte_of_a_version_file_with_a_flipped_bit_is_named(
    server: Server, right: dict[str, Any]
):
    for case in in_turn(cases(server.made), DAYS):
        check(server.ask(case), right, case)


# -- the version that a file claims ---------------------------------------------------------------


def version_byte(raw: bytes, name: str) -> int:
    """Where the first byte of the version number lies in a version file."""
    at = message_span(raw, name)[0]
    for field in read_fields(manifest_message(raw, name)):
        if field.number == VERSION:
            return at + 1
        at += len(field.raw)
    raise AssertionError(f"{name} has no version")


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "unrecorded"])
@pytest.mark.parametrize("number", range(4), ids=["manifest", "its branch", "table", "its branch"])
def test_a_version_file_that_claims_another_version_is_named(
    right: dict[str, Any], path: Path, number: int, recorded: bool
):
    """Also where no checksum is recorded, as in a graph that another program wrote."""
    if not recorded:
        shutil.rmtree(path / "__checksums")
    name = version_files(path)[number]
    raw = bytearray((path / name).read_bytes())
    said = parse_version(bytes(raw), name).version
    raw[version_byte(bytes(raw), name)] ^= 1
    assert abs(parse_version(bytes(raw), name).version - said) == 1
    (path / name).write_bytes(raw)
    actual = responses(path)
    check(actual, right, Case(name, "version", 0))
    assert any(isinstance(item, list) and "storage_corrupt" in item for item in actual.values())


def test_a_warm_handle_does_not_follow_to_a_damaged_version(path: Path):
    with Graph.open(path, "r") as reader:
        before = reader.commits()
        with Graph.open(path, durability="os") as writer:
            writer.tags.create("later")
        (name, *_) = version_files(path)
        raw = bytearray((path / name).read_bytes())
        raw[version_byte(bytes(raw), name)] ^= 1
        (path / name).write_bytes(raw)
        for _ in range(2):
            with pytest.raises(StorageCorrupt) as raised:
                reader.commits()
            assert raised.value.details["path"] == name
    assert before


@pytest.mark.parametrize("number", [1, 3], ids=["manifest", "table"])
def test_a_damaged_version_of_a_branch_stays_damaged_when_a_moved_graph_is_put_right(
    path: Path, tmp_path: Path, number: int
):
    """Its bytes must not be taken over, with a checksum that says that they are right."""
    moved = tmp_path / "moved.omni"
    shutil.copytree(path, moved)
    name = version_files(moved)[number]
    raw = bytearray((moved / name).read_bytes())
    raw[version_byte(bytes(raw), name)] ^= 1
    (moved / name).write_bytes(raw)
    actual = responses(moved)
    assert actual["verify"] == [name]
    assert actual["write work"][0] == "storage_corrupt"
    assert actual["write work"][1].endswith(name)
    assert responses(moved)["verify"] == [name]
