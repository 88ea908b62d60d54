"""A whole project in the style and size of real ones: a network of botanical gardens.

Written for this test. Its schema and queries hold what real projects do to a parser: banners of
box-drawing characters, comments full of syntax, names that look like keywords, enums over several
lines, edges that queries spell in another case.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from functools import cache
from typing import Any

import pytest

from omnigraph.lang.diagnostics import Source, Span
from omnigraph.lang.lexer import lex
from omnigraph.lang.query.checker import check_query
from omnigraph.lang.query.format import format_queries
from omnigraph.lang.query.lint import lint_queries
from omnigraph.lang.query.parser import parse_queries, read_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.format import format_schema
from omnigraph.lang.schema.lint import lint_schema
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.plan import MutationPlan, Plan, ReadPlan, compile_query, lower, optimize
from omnigraph.plan.explain import explain_json, explain_text
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, NodeScan, RowFilter

SCHEMA = """\
// Garden network — what grows where, who tends it, and how we know.
//
// Reading order:  Garden → Bed → Plant → Species     (the living side)
//                 Document → Passage                 (the paper side)
//
// A comment may hold anything: { braces }, "quotes", 'apostrophes', @unique(src,dst), it's // fine.


// ═══════════════════════════════════════════════════════════════════
// LIVING COLLECTION
// ═══════════════════════════════════════════════════════════════════

node Garden {
    slug: String @key
    name: String @index
    type: enum(public, university, private-estate, seed-bank)?
    founded: Date?
    area_ha: F64?
    site: String? @unique
    tags: [String]?
    createdAt: DateTime
}

// One bed belongs to one garden; see InGarden. The old `@unique(src,dst)` idea was dropped.
node Bed {
    slug: String @key
    name: String @index
    kind: enum(border, rockery, pond,
               glasshouse-1, glasshouse-2,   // two houses, don't merge them
               nursery, meadow) @index
    path: String?           // "garden/section/bed", as on the signs
    current: Bool @index
    createdAt: DateTime
}

node Species {
    slug: String @key
    name: String @index
    common_names: [String]?
    status: enum(
        least-concern,
        near-threatened,
        vulnerable,
        endangered,
        extinct-in-wild
    )? @index
    source: String?
    description: String? @index
}

node Plant {
    slug: String @key
    label: String @index
    kind: enum(tree, shrub, herb, climber, fern, moss) @index
    since: Date
    until: Date?
    branch: String?         // which nursery branch raised it
    pruned: [Date]?
    height_cm: I32?
    photo: Blob?
    createdAt: DateTime

    // Kept last on purpose.
    updatedAt: DateTime
}

node Accession {
    slug: String @key
    from: String?           // free text, e.g. "market in Gent"
    to: String?
    date: Date @index
    kind: enum(gift, purchase, exchange, wild-collected)
    primary: Bool?
}

node Seedlot { slug: String @key  count: I32?  timestamp: DateTime @index }


// ─── People ──────────────────────────────────────────────────────────

node Gardener {
    slug: String @key
    name: String @index
    email: String? @unique
    level: enum(trainee, junior, senior, head)? @index
    since: Date?
}

node Donor { slug: String @key  name: String  kind: enum(person, company, foundation)? }

node Expedition {
    slug: String @key
    name: String @index
    when: DateTime @index
    until: DateTime?
    phase: enum(planned, phase-1, phase-2, done) @index
    budget: F32?
}


// ─── Care ────────────────────────────────────────────────────────────

node Pest { slug: String @key  name: String @index  type: enum(insect, fungus, virus, mammal)? }

node Treatment {
    slug: String @key
    name: String @index
    organic: Bool
    dose_ml: U32?
}

node Observation {
    slug: String @key
    timestamp: DateTime @index
    date: Date
    score: I64?
    note: String? @index
    current: Bool?
}


// ─── Paper ───────────────────────────────────────────────────────────

node Document {
    slug: String @key
    title: String @index
    source: enum(herbarium, field-notes, e-mail, web, other) @index
    kind: enum(letter, label, ledger, photo-plate)? @index
    blob: Blob?
    path: String?
    branch: String?
    url: String? @unique
    date: Date?
}

node Passage {
    text: String
    position: I32
    embedding: Vector(3072) @embed("text") @index
    createdAt: DateTime
}


// ╔══════════════════════════════════════════════════════════════════╗
// ║ EDGES                                                            ║
// ╚══════════════════════════════════════════════════════════════════╝

// Where things stand { one place at a time }.
edge InGarden: Bed -> Garden @card(1..1) {
    @unique(src)
}
edge GrowsIn: Plant -> Bed @card(0..1) {
    since: Date?
    until: Date?
    primary: Bool?
    @unique(src)
}
edge OfSpecies: Plant -> Species @card(1..1)
edge NextToBed: Bed -> Bed

edge FromAccession: Plant -> Accession @card(0..1)
edge AccessionOfSpecies: Accession -> Species
edge AccessionInGarden: Accession -> Garden
edge GivenBy: Accession -> Donor @card(0..1)
edge CollectedOn: Accession -> Expedition @card(0..1)   // only for kind = wild-collected
edge LotOfSpecies: Seedlot -> Species @card(1..1) { @unique(src) }
edge LotFromPlant: Seedlot -> Plant
edge LotStoredIn: Seedlot -> Garden
edge RaisedFromLot: Plant -> Seedlot @card(0..1)
edge CuttingOf: Plant -> Plant @card(0..1)

edge WorksIn: Gardener -> Garden {
    role: String?
    from: Date?
    to: Date?
    current: Bool?
}
edge Tends: Gardener -> Bed { since: Date? }
edge Planted: Gardener -> Plant { when: DateTime? }
edge Mentors: Gardener -> Gardener
edge JoinedExpedition: Gardener -> Expedition { role: enum(lead, botanist, cook, driver)? }
edge ExpeditionOfGarden: Expedition -> Garden
edge FundedBy: Expedition -> Donor { amount: F64?  date: Date? }

edge AboutPlant: Observation -> Plant @card(1..1) {
    @unique(src)
}
edge ObservedBy: Observation -> Gardener
edge SawPest: Observation -> Pest { kind: enum(trace, light, heavy)? }
edge LedToTreatment: Observation -> Treatment
edge Attacks: Pest -> Species
edge SpreadsTo: Pest -> Pest
edge Treats: Treatment -> Pest
edge TreatedWith: Plant -> Treatment {
    date: Date
    source: String?
}

edge PassageOf: Passage -> Document @card(1..1) {
    @unique(src)
}
edge WrittenBy: Document -> Gardener
edge Describes: Document -> Species
edge MentionsPlant: Document -> Plant
edge MentionsDonor: Document -> Donor
edge CopyOf: Document -> Document {
    type: enum(scan, transcript, translation)
    timestamp: DateTime?
    @unique(src, dst)
}
edge RelatedSpecies: Species -> Species


// ─── Cross references, one per pair ──────────────────────────────────
"""

NODES = [
    *["Garden", "Bed", "Species", "Plant", "Accession", "Seedlot", "Gardener"],
    *["Donor", "Expedition", "Pest", "Treatment", "Observation", "Document", "Passage"],
]

# The long tail: real schemas have an edge for almost every pair of types.
TAIL = [("Keeps", source, target) for source in NODES[:7] for target in NODES[7:12]]

QUERIES = """\
// ── Lookups ──────────────────────────────────────────────────────────
// Params look like {"slug": "gd-1"}; no braces are needed around them, don't worry.

query get_garden($slug: String) {
    match {
        $g: Garden { slug: $slug }
    }
    return { $g.slug, $g.name, $g.type, $g.founded, $g.tags }
}

query gardens_all() {
    match { $g: Garden }
    return { $g.slug, $g.name }
    order { $g.name }
}

query beds_by_kind($kind: String) {
    match { $b: Bed { kind: $kind, current: true } }
    return { $b.slug, $b.path, $b.kind, $b.current }
    order { $b.kind asc, $b.path desc }
}

query glasshouse() { match { $b: Bed { kind: "glasshouse-1" } } return { $b.slug } limit 5 }

query plants_since($date: Date) {
    match {
        $p: Plant
        $p.since >= $date
    }
    return { $p.slug, $p.label, $p.since, $p.until, $p.branch }
    order { $p.since desc }
}

query accession_route($from: String, $to: String) {
    match { $a: Accession { from: $from, to: $to } }
    return { $a.slug, $a.from, $a.to, $a.date, $a.kind, $a.primary }
}

query documents_from($source: String) {
    match {
        $d: Document { source: $source }
        $d.kind != "ledger"   // nulls drop out too
    }
    return { $d.slug, $d.title, $d.path, $d.branch, $d.date }
}

query expeditions_after($when: DateTime) {
    match {
        $e: Expedition
        $e.when >= $when
        $e.phase != "done"
    }
    return { $e.slug, $e.when, $e.until, $e.phase }
    order { $e.when desc }
    limit 20
}

query observations_on($date: Date) {
    match { $o: Observation { date: $date } }
    return { $o.slug, $o.timestamp, $o.date, $o.score, $o.current }
}

// ── One hop, either way → and ← ──────────────────────────────────────

query garden_beds($slug: String) {
    match {
        $g: Garden { slug: $slug }
        $b inGarden $g
    }
    return { $b.slug, $b.name, $b.kind }
}

query plant_species($slug: String) {
    match {
        $p: Plant { slug: $slug }
        $p ofSpecies $s
    }
    return { $s.slug, $s.name, $s.status, $s.source }
}

query gardener_gardens($slug: String) {
    match { $w: Gardener { slug: $slug } $w worksIn $g }
    return { $g.slug, $g.type }
}

query mentors_of($slug: String) {
    match {
        $w: Gardener { slug: $slug }
        $m mentors $w
    }
    return { $m.slug, $m.level, $m.since }
}

query copies($slug: String) {
    match {
        $d: Document { slug: $slug }
        $copy copyOf $d
    }
    return { $copy.slug, $copy.title, $copy.url }
}

query pests_of($slug: String) {
    match {
        $s: Species { slug: $slug }
        $x attacks $s
    }
    return { $x.slug, $x.name, $x.type }
}

query passages_of($slug: String) {
    match {
        $d: Document { slug: $slug }
        $t passageOf $d
    }
    return { $t.text, $t.position }
    order { $t.position asc }
}

query any_mentors() {
    match { $a mentors $b }
    return { $a.name as mentor, $b.name as trainee }
}

// ── Chains and joins ─────────────────────────────────────────────────

// Gardener → Bed ← Plant → Species ← Pest, with the type of $p said late.
query threats_to_my_beds($slug: String) {
    match {
        $w: Gardener { slug: $slug }
        $w tends $b
        $p growsIn $b
        $p ofSpecies $s
        $x attacks $s
        $p: Plant { kind: "tree" }
    }
    return { $b.slug, $p.label, $s.name, $x.name }
    order { $s.name, $p.label }
}

query garden_species($slug: String) {
    match {
        $g: Garden { slug: $slug }
        $b inGarden $g
        $p growsIn $b
        $p ofSpecies $s
        $s.status != "least-concern"
    }
    return { $s.slug, $s.name, count($p) as plants }
    order { plants desc }
}

query own_harvest($slug: String) {
    match {
        $g: Garden { slug: $slug }
        $l: Seedlot
        $l lotStoredIn $g
        $l lotFromPlant $p
        $p growsIn $b
        $b inGarden $g
    }
    return { $l.slug, $l.timestamp, $l.count, $p.slug }
}

query treated_for_what_was_seen($since: Date) {
    match {
        $o: Observation
        $o aboutPlant $p
        $o sawPest $x
        $o ledToTreatment $t
        $t treats $x
        $p treatedWith $t
        $o.date >= $since
    }
    return { $o.slug, $p.slug, $x.name, $t.name }
    order { $o.date desc, $p.slug }
}

query expedition_yield($slug: String) {
    match {
        $e: Expedition { slug: $slug }
        $a: Accession { kind: "wild-collected" }
        $a collectedOn $e
        $p fromAccession $a
    }
    return { $a.slug, $a.date, count($p) as plants }
}

query donors_of_expeditions($kind: String) {
    match {
        $d: Donor { kind: $kind }
        $e fundedBy $d
        $e expeditionOfGarden $g
        $w joinedExpedition $e
        $w worksIn $g
    }
    return { $d.name, $e.name, $w.name, $g.name }
}

query phase_counts() {
    match { $e: Expedition }
    return { $e.phase, count($e) as expeditions }
    order { expeditions desc }
}

query score_summary() {
    match { $o: Observation $o aboutPlant $p }
    return { $p.slug, max($o.score) as best, avg($o.score) as mean }
}

// ── What is missing ──────────────────────────────────────────────────

query empty_beds() {
    match {
        $b: Bed
        not { $_ growsIn $b }
    }
    return { $b.slug, $b.path }
}

query unplaced_plants() {
    match {
        $p: Plant
        not { $p growsIn $_ }
        not { $p fromAccession $_ }
    }
    return { $p.slug, $p.label }
    order { $p.label }
}

// Nobody looked since the cutoff: {"when": "2031-04-01T00:00:00Z"}
query unseen_plants($when: DateTime) {
    match {
        $p: Plant
        not {
            $o aboutPlant $p
            $o.timestamp >= $when
        }
    }
    return { $p.slug, $p.kind }
}

query untreatable() {
    match {
        $x: Pest
        $x attacks $s
        not { $t treats $x $t.organic = true }
    }
    return { $x.name, $s.name }
}

// ── Search ───────────────────────────────────────────────────────────

query find_species($q: String) {
    match {
        $s: Species
        search($s.description, $q)
    }
    return { $s.slug, $s.name }
}

query best_species($q: String) {
    match { $s: Species }
    return { $s.slug, $s.name }
    order { bm25($s.description, $q) }
    limit 10
}

query near_text($q: String) {
    match { $t: Passage }
    return { $t.text, $t.position }
    order { nearest($t.embedding, $q) }
    limit 10
}

query near_vector($q: Vector(3072)) {
    match { $t: Passage $t passageOf $d }
    return { $t.text, $d.slug }
    order { nearest($t.embedding, $q) }
    limit 3
}

query hybrid($q: String, $source: String) {
    match {
        $t: Passage
        $t passageOf $d
        $d.source = $source
    }
    return { $t.text, $d.title }
    order { rrf(nearest($t.embedding, $q), bm25($t.text, $q)) }
    limit 10
}

// ── Changes ──────────────────────────────────────────────────────────

query add_expedition($slug: String, $name: String, $when: DateTime) {
    insert Expedition { slug: $slug, name: $name, when: $when, phase: "phase-1" }
}

query add_accession($slug: String, $from: String, $to: String, $date: Date, $kind: String) {
    insert Accession { slug: $slug, from: $from, to: $to, date: $date, kind: $kind }
}

query add_document($slug: String, $title: String, $source: String, $date: Date) {
    insert Document { slug: $slug, title: $title, source: $source, date: $date }
}

query add_passage($text: String, $position: I32, $when: DateTime) {
    insert Passage { text: $text, position: $position, createdAt: $when }
}

query link_next($from: String, $to: String) {
    insert NextToBed { from: $from, to: $to }
}

query link_copy($from: String, $to: String, $kind: String, $when: DateTime) {
    insert CopyOf { from: $from, to: $to, type: $kind, timestamp: $when }
}

// Two statements, one change.
query plant_out($plant: String, $bed: String, $gardener: String, $date: Date) {
    insert GrowsIn { from: $plant, to: $bed, since: $date, primary: true }
    insert Planted { from: $gardener, to: $plant }
}
"""


@cache
def schema_source() -> Source:
    tail = "".join(f"edge {edge_name(*row)}: {row[1]} -> {row[2]}\n" for row in TAIL)
    return Source("gardens.pg", SCHEMA + tail)


@cache
def query_source() -> Source:
    """The queries above, and for every edge of the tail one that walks it and one that adds it."""
    texts = [QUERIES]
    for number, row in enumerate(TAIL):
        name = edge_name(*row)
        word = name[0].lower() + name[1:]
        texts.append(
            f"\n// {row[1]} → {row[2]}\n"
            f"query walk_{number}($slug: String) {{\n"
            f"    match {{\n        $a: {row[1]} {{ slug: $slug }}\n        $a {word} $b\n    }}\n"
            f"    return {{ $b.slug }}\n}}\n\n"
            f"query link_{number}($from: String, $to: String) {{\n"
            f"    insert {name} {{ from: $from, to: $to }}\n}}\n"
        )
    return Source("gardens.gq", "".join(texts))


def edge_name(verb: str, source: str, target: str) -> str:
    return f"{source}{verb}{target}"


@cache
def catalog() -> Catalog:
    return compile_schema(schema_source())


@cache
def plans() -> dict[str, Plan]:
    file = read_queries(query_source())
    checked = (check_query(catalog(), query_source(), query) for query in file.queries)
    return {query.name: optimize(lower(query, query_source())) for query in checked}


def steps(name: str) -> list[type]:
    plan = plans()[name]
    assert isinstance(plan, ReadPlan)
    return [type(step) for step in plan.pipeline]


def comments(source: Source) -> list[str]:
    return [comment.text.rstrip() for comment in lex(source).comments]


def bare(tree: Any) -> Any:
    """A syntax tree as plain data without places."""
    if isinstance(tree, Span):
        return None
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = dataclasses.fields(tree)
        return type(tree).__name__, {f.name: bare(getattr(tree, f.name)) for f in fields}
    if isinstance(tree, tuple | list):
        return [bare(item) for item in tree]
    return tree


# -- the schema ---------------------------------------------------------------------------------


def test_the_schema_compiles_at_full_size() -> None:
    assert sorted(catalog().node_types) == sorted(NODES)
    assert len(catalog().edge_types) >= 70
    file, problems = parse_schema(schema_source())
    assert problems == []
    # `from` and `to` are names like others, but an insert of that edge cannot reach them.
    warned = [d.message.split()[1] for d in lint_schema(file, schema_source())]
    assert warned == ["'from'", "'to'"]


@pytest.mark.parametrize(
    ("owner", "name", "shown"),
    [
        ("Garden", "type", "enum(private-estate, public, seed-bank, university)?"),
        ("Bed", "kind", "enum(border, glasshouse-1, glasshouse-2, meadow, nursery, pond, rockery)"),
        ("Bed", "path", "String?"),
        ("Bed", "current", "Bool"),
        ("Plant", "since", "Date"),
        ("Plant", "until", "Date?"),
        ("Plant", "branch", "String?"),
        ("Plant", "pruned", "[Date]?"),
        ("Accession", "from", "String?"),
        ("Accession", "to", "String?"),
        ("Accession", "date", "Date"),
        ("Accession", "primary", "Bool?"),
        ("Expedition", "when", "DateTime"),
        ("Seedlot", "timestamp", "DateTime"),
        ("Document", "source", "enum(e-mail, field-notes, herbarium, other, web)"),
        ("Document", "blob", "Blob?"),
        ("Passage", "embedding", "Vector(3072)"),
    ],
)
def test_names_that_look_like_keywords_are_properties(owner: str, name: str, shown: str) -> None:
    node = catalog().node(owner)
    assert node is not None
    assert str(node.properties[name].type) == shown


def test_edges_keep_cardinality_and_constraints_but_none_from_comments() -> None:
    one, copy, tends = (catalog().edge(word) for word in ("inGarden", "copyof", "TENDS"))
    assert one is not None
    assert copy is not None
    assert tends is not None
    assert (one.cardinality.min, one.cardinality.max) == (1, 1)
    assert one.unique == (("src",),)
    assert copy.unique == (("dst", "src"),)
    assert tends.unique == ()
    passage = catalog().node_types["Passage"]
    assert passage.embeds["embedding"].source == "text"
    assert ("embedding",) in passage.indexes


def test_formatting_the_schema_keeps_tree_and_comments() -> None:
    once = Source("once.pg", format_schema(schema_source()))
    assert format_schema(once) == once.text
    assert bare(parse_schema(once)[0]) == bare(parse_schema(schema_source())[0])
    assert comments(once) == comments(schema_source())
    assert compile_schema(once).schema_hash == catalog().schema_hash


# -- the queries --------------------------------------------------------------------------------


def test_every_query_checks() -> None:
    report = lint_queries(catalog(), query_source(), {"kind": "file", "path": "gardens.pg"})
    assert [d.render() for d in report.diagnostics] == []
    assert (report.status, report.findings) == ("ok", ())
    written, _ = parse_queries(Source("written.gq", QUERIES))
    assert len(written.queries) >= 40
    assert len(report.results) == len(written.queries) + 2 * len(TAIL)


def test_every_query_plans_and_explains() -> None:
    for name, plan in plans().items():
        assert plan.name == name
        kind = "read" if isinstance(plan, ReadPlan) else "mutation"
        assert explain_text(plan).startswith(f"{kind} {name}(")
        assert explain_json(plan)["name"] == name
    kinds = Counter(type(plan) for plan in plans().values())
    assert kinds == {ReadPlan: 34 + len(TAIL), MutationPlan: 7 + len(TAIL)}


@pytest.mark.parametrize("name", ["get_garden", "hybrid", "plant_out", "link_0"])
def test_a_query_is_picked_out_of_the_file_by_name(name: str) -> None:
    assert compile_query(catalog(), query_source(), name) == plans()[name]


def test_a_plan_has_one_step_per_clause_and_filters_sit_where_they_apply() -> None:
    assert steps("gardens_all") == [NodeScan]
    assert steps("plants_since") == [NodeScan]
    assert steps("garden_beds") == [NodeScan, Expand]
    assert steps("any_mentors") == [NodeScan, Expand]
    assert steps("threats_to_my_beds") == [NodeScan, *[Expand] * 4]
    assert steps("garden_species") == [NodeScan, *[Expand] * 3]
    assert steps("unplaced_plants") == [NodeScan, AntiJoin, AntiJoin]
    assert steps("hybrid") == [NodeScan, Expand]


def test_a_shared_variable_closes_a_cycle_instead_of_making_a_product() -> None:
    for name in ("own_harvest", "treated_for_what_was_seen", "donors_of_expeditions"):
        actual = Counter(steps(name))
        assert actual[NodeScan] == 1
        assert actual[Connect] >= 1
        assert actual[RowFilter] == 0


def test_a_negation_starts_from_the_outer_variable() -> None:
    plan = plans()["unseen_plants"]
    assert isinstance(plan, ReadPlan)
    (anti,) = [step for step in plan.pipeline if isinstance(step, AntiJoin)]
    assert anti.outer == ("p",)
    (expand,) = anti.inner
    assert isinstance(expand, Expand)
    assert (expand.edge_type, expand.direction, expand.dst_type) == (
        "AboutPlant",
        "in",
        "Observation",
    )
    assert len(expand.dst_filters) == 1


def test_parameters_and_columns_may_be_called_like_keywords() -> None:
    plan = plans()["accession_route"]
    assert isinstance(plan, ReadPlan)
    assert list(plan.params) == ["from", "to"]
    assert [column.name for column in plan.columns][1:4] == ["a.from", "a.to", "a.date"]
    hybrid = plans()["hybrid"]
    assert isinstance(hybrid, ReadPlan)
    assert (len(hybrid.order), hybrid.limit) == (1, 10)


def test_a_change_keeps_its_statements_in_order() -> None:
    plan = plans()["plant_out"]
    assert isinstance(plan, MutationPlan)
    assert [statement.type_name for statement in plan.statements] == ["GrowsIn", "Planted"]


def test_formatting_the_queries_keeps_tree_and_comments() -> None:
    once = Source("once.gq", format_queries(query_source()))
    assert format_queries(once) == once.text
    assert bare(parse_queries(once)[0]) == bare(parse_queries(query_source())[0])
    assert comments(once) == comments(query_source())


# -- how it reads and how fast ------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\r\n", "\n\n"])
def test_line_ends_do_not_matter(end: str) -> None:
    text = schema_source().text.replace("\n", end)
    assert compile_schema(text).schema_hash == catalog().schema_hash
    queries = Source("other.gq", query_source().text.replace("\n", end))
    file, problems = parse_queries(queries)
    assert problems == []
    assert bare(file) == bare(parse_queries(query_source())[0])


def test_a_mistake_is_reported_once_at_its_place_and_only_for_its_query() -> None:
    text = query_source().text.replace("$w tends $b", "$w tend $b")
    source = Source("gardens.gq", text.replace("$s.status !=", "$s.statsu !="))
    report = lint_queries(catalog(), source, {"kind": "file", "path": "gardens.pg"})
    broken = [result.name for result in report.results if result.error]
    assert broken == ["threats_to_my_beds", "garden_species"]
    assert [(d.code, d.hint) for d in report.diagnostics] == [
        ("T4", "did you mean `tends`?"),
        ("T6", "did you mean `status`?"),
    ]
    locations = [source.line(source.position(d.span.start)[0]) for d in report.diagnostics]
    assert [line.strip() for line in locations] == ["$w tend $b", '$s.statsu != "least-concern"']


def test_a_project_compiles_in_well_under_a_second() -> None:
    started = time.perf_counter()
    compiled = compile_schema(schema_source().text)
    lint_queries(compiled, query_source(), {"kind": "file", "path": "gardens.pg"})
    assert time.perf_counter() - started < 3
