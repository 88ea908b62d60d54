"""``omnigraph embed``: vectors for seed files."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys

import pytest

from tests.cli.desk import Desk
from tests.cli.workspace import Workspace, assert_fails
from tests.embed.server import gemini_batch, openai, provider

SPEC = {
    "dimension": 4,
    "types": {
        "Doc": {"target": "vector", "fields": ["title", "note", "tags", "year"]},
        "Tag": {"target": "v", "fields": ["name"]},
    },
}
ROWS = [
    {"type": "Doc", "data": {"title": " Tea ", "note": None, "tags": ["a", "b"], "year": 1999}},
    {"type": "Doc", "data": {"title": "Zoë", "vector": [1.0, 0.0, 0.0, 0.0]}},
    {"type": "Doc", "data": {"title": "null", "vector": None}},
    {"type": "Tag", "data": {"name": "x", "v": []}},
    {"type": "Other", "data": {"title": "Tea"}},
    {"edge": "Has", "from": "a", "to": "b", "data": {"title": "Tea"}},
]
FILES = ("--input", "in.jsonl", "--output", "out.jsonl", "--spec", "spec.json")
SUMMARY = [
    "input",
    "output",
    "rows",
    "selected_rows",
    "embedded_rows",
    "cleaned_rows",
    "mode",
    "dimension",
    "model",
]


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path, monkeypatch, capsys)
    for name in ("OMNIGRAPH_EMBED_PROVIDER", "OPENROUTER_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    desk.environ(OMNIGRAPH_EMBEDDINGS_MOCK="1")
    desk.write("spec.json", json.dumps(SPEC))
    seed(desk, *ROWS)
    return desk


def seed(desk, *rows) -> None:
    desk.write("in.jsonl", "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def result(desk, name: str = "out.jsonl") -> list[dict]:
    text = (desk.directory / name).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def mock(text: str, dimension: int = 4) -> list[float]:
    """The mock vector of a text: its FNV-1a hash seeds an xorshift generator."""
    state = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        state = (state ^ byte) * 0x100000001B3 % 2**64
    values = []
    for _ in range(dimension):
        state ^= state << 13 & 2**64 - 1
        state ^= state >> 7
        state ^= state << 17 & 2**64 - 1
        values.append(f32(f32(2 * f32(state / (2**64 - 1))) - 1))
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


def is_close(actual: list[float], wanted: list[float]) -> bool:
    return len(actual) == len(wanted) and all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-7) for a, b in zip(actual, wanted, strict=True)
    )


# -- filling --------------------------------------------------------------------------------------


def test_missing_vectors_are_filled_and_the_rest_stays(desk):
    done = desk.run("embed", *FILES)
    assert done.works() == (
        "embedded 3 rows (selected 4, cleaned 0) from in.jsonl -> out.jsonl [fill_missing 4d]\n"
    )
    assert done.err == ""
    actual = result(desk)
    tea = "type: Doc\ntitle: Tea\ntags: a, b\nyear: 1999"
    assert is_close(actual[0]["data"]["vector"], mock(tea))
    assert is_close(actual[2]["data"]["vector"], mock("type: Doc\ntitle: null"))
    assert is_close(actual[3]["data"]["v"], mock("type: Tag\nname: x"))
    assert [actual[at] for at in (1, 4, 5)] == [ROWS[at] for at in (1, 4, 5)]
    assert list(actual[0]["data"]) == ["title", "note", "tags", "year", "vector"]
    assert not (desk.directory / "out.jsonl.tmp").exists()


def test_lines_that_are_not_touched_stay_as_they_are_and_blank_ones_vanish(desk):
    odd = '{ "type" : "Other", "data": {"n": 1.10, "t": "\\u00e9"} }'
    desk.write("in.jsonl", f'\n{odd}\r\n   \n{{"edge":"E", "from": "a"}}')
    desk.run("embed", *FILES).works()
    text = (desk.directory / "out.jsonl").read_text("utf-8")
    assert text == f'{odd}\n{{"edge":"E", "from": "a"}}\n'


def test_a_vector_is_written_as_short_as_it_can_be(desk):
    seed(desk, ROWS[0])
    desk.run("embed", *FILES).works()
    for value in result(desk)[0]["data"]["vector"]:
        assert len(repr(abs(value))) <= 14
        assert f32(value) == pytest.approx(value, rel=1e-7)


def test_many_rows_keep_their_order(desk):
    rows = [{"type": "Doc", "data": {"title": f"t{n}"}} for n in range(300)]
    seed(desk, *rows)
    reported = json.loads(desk.run("embed", *FILES, "--json").works())
    assert (reported["rows"], reported["embedded_rows"]) == (300, 300)
    actual = result(desk)
    assert [row["data"]["title"] for row in actual] == [f"t{n}" for n in range(300)]
    assert is_close(actual[257]["data"]["vector"], mock("type: Doc\ntitle: t257"))


def test_a_file_may_be_filled_in_place_and_again(desk):
    location = ("--input", "in.jsonl", "--output", "in.jsonl", "--spec", "spec.json")
    assert json.loads(desk.run("embed", *location, "--json").works())["embedded_rows"] == 3
    before = (desk.directory / "in.jsonl").read_bytes()
    assert json.loads(desk.run("embed", *location, "--json").works())["embedded_rows"] == 0
    assert (desk.directory / "in.jsonl").read_bytes() == before


# -- modes and selection --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "mode", "selected", "embedded", "cleaned"),
    [
        ((), "fill_missing", 4, 3, 0),
        (("--type", "Tag"), "fill_missing", 1, 1, 0),
        (("--type", "Tag", "--type", "Doc"), "fill_missing", 4, 3, 0),
        (("--reembed-all",), "reembed_all", 4, 4, 0),
        (("--reembed-all", "--type", "Doc"), "reembed_all", 3, 3, 0),
        (("--select", "title=Zoë"), "reembed_selected", 1, 1, 0),
        (("--select", "Doc:title=Zoë"), "reembed_selected", 1, 1, 0),
        (("--select", "Tag:title=Zoë"), "reembed_selected", 0, 0, 0),
        (("--select", "title=Zoë", "--select", "name=x"), "reembed_selected", 2, 2, 0),
        (("--select", "year=1999"), "reembed_selected", 1, 1, 0),
        (("--select", 'tags=["a","b"]'), "reembed_selected", 1, 1, 0),
        (("--select", "title=Zoë", "--type", "Tag"), "reembed_selected", 0, 0, 0),
        (("--select", "title=Zoë", "--reembed-all"), "reembed_all", 1, 1, 0),
        (("--clean",), "clean", 4, 0, 3),
        (("--clean", "--type", "Tag"), "clean", 1, 0, 1),
        (("--clean", "--select", "title=Zoë"), "clean", 1, 0, 1),
    ],
)
def test_rows_are_chosen(desk, options, mode, selected, embedded, cleaned):
    reported = json.loads(desk.run("embed", *FILES, *options, "--json").works())
    assert list(reported) == SUMMARY
    assert reported == {
        "input": "in.jsonl",
        "output": "out.jsonl",
        "rows": 6,
        "selected_rows": selected,
        "embedded_rows": embedded,
        "cleaned_rows": cleaned,
        "mode": mode,
        "dimension": 4,
        "model": "",
    }


def test_cleaned_rows_have_no_vector(desk):
    desk.environ(OMNIGRAPH_EMBEDDINGS_MOCK="", OMNIGRAPH_EMBED_MODEL="m")
    done = desk.run("embed", *FILES, "--clean")
    assert done.works().endswith("[clean 4d]\n")
    assert "(selected 4, cleaned 3)" in done.out
    assert all({"vector", "v"}.isdisjoint(row["data"]) for row in result(desk))
    assert json.loads(desk.run("embed", *FILES, "--clean", "--json").works())["model"] == ""


def test_a_selected_row_gets_its_vector_anew(desk):
    desk.run("embed", *FILES, "--select", "Doc:title=Zoë").works()
    actual = result(desk)
    assert is_close(actual[1]["data"]["vector"], mock("type: Doc\ntitle: Zoë"))
    assert actual[0] == ROWS[0]


# -- manifests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("sources: { raw_seed: ../in.jsonl }", "m/build/seed.embedded.jsonl"),
        ("seed: { data: ../in.jsonl }", "m/build/seed.embedded.jsonl"),
        (
            "sources: { raw_seed: ../in.jsonl }\nartifacts: { embedded_seed: deep/x.jsonl }",
            "m/deep/x.jsonl",
        ),
    ],
)
def test_a_manifest_names_everything_relative_to_itself(desk, text, output):
    desk.write("m/seed.yaml", f"{text}\nembeddings: {json.dumps(SPEC)}\n")
    reported = json.loads(desk.run("embed", "--seed", "m/seed.yaml", "--json").works())
    assert (reported["input"], reported["output"]) == ("m/../in.jsonl", output)
    assert len(result(desk, output)) == 6


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "m.yaml: not YAML"),
        ("- a", "m.yaml: a manifest must be a map"),
        ("embeddings: {}", "`sources.raw_seed` is missing"),
        ("sources: { raw_seed: in.jsonl }", "`embeddings` is missing"),
        ("sources: { raw_seed: in.jsonl }\nembeddings: 1", "need `dimension` and `types`"),
        ("sources: { raw_seed: no.jsonl }\nembeddings: { dimension: 1, types: {} }", "no such"),
    ],
)
def test_a_manifest_that_is_wrong_is_one_line(desk, text, part):
    desk.write("m.yaml", text)
    desk.run("embed", "--seed", "m.yaml").fails(part)
    assert not (desk.directory / "build").exists()


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("{", "not JSON"),
        ("[]", "need `dimension` and `types`"),
        ('{"dimension": 0, "types": {}}', "`dimension` must be a whole number above 0"),
        ('{"dimension": true, "types": {}}', "`dimension` must be a whole number above 0"),
        ('{"dimension": 2, "types": {"T": 1}}', "type T: `target` must name a property"),
        ('{"dimension": 2, "types": {"T": {"target": "v"}}}', "`fields` must be a list"),
        ('{"dimension": 2, "types": {"T": {"target": "v", "fields": []}}}', "`fields` must be"),
    ],
)
def test_a_specification_that_is_wrong_is_one_line(desk, spec, part):
    desk.write("spec.json", spec)
    desk.run("embed", *FILES).fails(part)


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"{", "in.jsonl, line 2: not JSON"),
        (b"[1]", "line 2: a row must be a JSON object"),
        (b'{"type": "Doc"}', "line 2: a row of type 'Doc' needs an object `data`"),
        (b'{"type": "Other", "data": 1}', "line 2: a row of type 'Other' needs an object `data`"),
        (b'{"type": "Doc", "data": {"n": NaN}}', "line 2: not JSON"),
        (b'{"type": "Doc", "data": {"n": 1e999}}', "line 2: not JSON"),
        (b'{"type": "Doc", "data": {"n": "\xff"}}', "line 2: not UTF-8 text"),
    ],
)
def test_a_wrong_row_is_named_by_its_line_and_nothing_is_left(desk, line, part):
    desk.write("in.jsonl", b'{"type":"Tag","data":{"name":"x"}}\n' + line + b"\n")
    desk.write("out.jsonl", "old\n")
    desk.run("embed", *FILES).fails(part, "bad_record")
    assert (desk.directory / "out.jsonl").read_text("utf-8") == "old\n"
    assert not (desk.directory / "out.jsonl.tmp").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        FILES[:4],
        FILES[2:],
        ("--seed", "m.yaml", "--input", "in.jsonl"),
        ("--seed", "m.yaml", "--output", "out.jsonl"),
        ("--seed", "m.yaml", "--spec", "spec.json"),
        (*FILES, "--clean", "--reembed-all"),
        (*FILES, "--select", "title"),
        (*FILES, "--select", "=x"),
        (*FILES, "--select", ":title=x"),
        (*FILES, "more"),
    ],
)
def test_wrong_usage_of_embed_exits_2(desk, arguments):
    done = desk.run("embed", *arguments)
    assert (done.code, done.out) == (2, "")
    assert not (desk.directory / "out.jsonl").exists()


def test_a_type_that_is_not_in_the_specification_is_refused(desk):
    desk.run("embed", *FILES, "--type", "Dok").fails("type 'Dok' is not among", "Doc, Tag")
    desk.run("embed", *FILES, "--select", "Dok:a=b").fails("type 'Dok' is not among")


def test_files_that_cannot_be_used_are_one_line(desk):
    desk.run("embed", "--input", "no", *FILES[2:]).fails("no: no such file")
    desk.run("embed", *FILES[:4], "--spec", "no").fails("no: no such file")
    (desk.directory / "dir").mkdir()
    desk.run("embed", *FILES[:2], "--output", "dir", *FILES[4:]).fails("cannot write 'dir'")
    assert not (desk.directory / "dir.tmp").exists()


def test_a_key_is_only_missed_when_something_needs_it(desk):
    desk.environ(OMNIGRAPH_EMBEDDINGS_MOCK="")
    desk.run("embed", *FILES).fails("OPENROUTER_API_KEY or OPENAI_API_KEY")
    seed(desk, ROWS[1])
    reported = json.loads(desk.run("embed", *FILES, "--json").works())
    assert (reported["embedded_rows"], reported["model"]) == (0, "openai/text-embedding-3-large")
    desk.environ(OMNIGRAPH_EMBED_PROVIDER="nobody")
    desk.run("embed", *FILES).fails("unknown embedding provider 'nobody'")


def test_a_provider_over_http_gets_the_texts_as_documents(desk):
    with provider(openai(lambda text, size: [float(len(text))] + [0.0] * (size - 1))) as requested:
        desk.environ(
            OMNIGRAPH_EMBEDDINGS_MOCK="",
            OMNIGRAPH_EMBED_PROVIDER="openai",
            OMNIGRAPH_EMBED_BASE_URL=requested.url,
            OPENAI_API_KEY="key-1",
        )
        reported = json.loads(desk.run("embed", *FILES, "--json").works())
        assert reported["model"] == "text-embedding-3-large"
        assert requested.texts[2] == "type: Tag\nname: x"
        assert result(desk)[0]["data"]["vector"] == [1.0, 0.0, 0.0, 0.0]


def test_no_request_has_more_texts_than_the_provider_allows(desk):
    seed(desk, *({"type": "Tag", "data": {"name": f"t{n}"}} for n in range(300)))
    with provider(gemini_batch(lambda text, size: [float(len(text))] * size)) as requested:
        desk.environ(
            OMNIGRAPH_EMBEDDINGS_MOCK="",
            OMNIGRAPH_EMBED_PROVIDER="gemini",
            OMNIGRAPH_EMBED_BASE_URL=requested.url,
            GEMINI_API_KEY="key-1",
        )
        desk.run("embed", *FILES).works()
    sizes = [len(body["requests"]) for _, _, body in requested.requests]
    assert (sum(sizes), max(sizes) <= 100) == (300, True)


def test_a_refusal_of_the_provider_names_the_lines(desk):
    with provider((400, {})) as requested:
        desk.environ(
            OMNIGRAPH_EMBEDDINGS_MOCK="",
            OMNIGRAPH_EMBED_PROVIDER="openai",
            OMNIGRAPH_EMBED_BASE_URL=requested.url,
            OPENAI_API_KEY="key-1",
        )
        done = desk.run("embed", *FILES)
    done.fails("in.jsonl, line 1 to 4: ", "HTTP status 400")
    assert "key-1" not in done.err
    assert not (desk.directory / "out.jsonl").exists()


# -- as a process ---------------------------------------------------------------------------------


def test_a_bar_shows_how_far_it_is_to_somebody_who_looks(tmp_path):
    location = Workspace(tmp_path)
    location.write("spec.json", json.dumps(SPEC))
    location.write("in.jsonl", "".join(f"{json.dumps(row)}\n" for row in ROWS))
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        done = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli", "embed", *FILES],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "OMNIGRAPH_EMBEDDINGS_MOCK": "1", "TERM": "xterm"},
            check=False,
        )
        drawn = screen.read(10_000).decode("utf-8")
    os.close(theirs)
    assert (done.returncode, done.stdout[:15]) == (0, b"embedded 3 rows")
    assert "embed  embedding" in drawn
    assert "/6" in drawn


def test_embed_as_a_process(tmp_path):
    location = Workspace(tmp_path)
    location.write("spec.json", json.dumps(SPEC))
    rows = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    piped = ("embed", "--input", "-", *FILES[2:])
    done = location.process(*piped, stdin=rows.encode(), OMNIGRAPH_EMBEDDINGS_MOCK="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("embedded 3 rows (selected 4, cleaned 0) from - -> out.jsonl")
    assert_fails(location.process("embed", *FILES), "in.jsonl: no such file or directory")
    assert location.process("embed", "--seed").returncode == 2
