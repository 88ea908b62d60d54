"""A graph of two tenants, an actor for each, and an owner who sees everything."""

from __future__ import annotations

from omnigraph import Graph, Policy

SCHEMA = """\
node Person { name: String @key  tenant: String  mail: String? @unique  photo: Blob? }
node Team { name: String @key  tenant: String }
node Tag { name: String @key }
node Kind { name: String @key }
edge Knows: Person -> Person @card(0..2) { secret: Bool?  @unique(src, dst) }
edge In: Person -> Team { since: I32? }
edge Under: Kind -> Kind
"""
ACTIONS = "read, export, change, schema_apply, branch_create, branch_delete, branch_merge, admin"
BUNDLE = f"""
version: 2
groups: {{tenants: [ana, bo, cy], owners: [owner]}}
actors: {{ana: {{tenant: t1}}, bo: {{tenant: t2}}, cy: {{tenant: t1}}}}
rules:
  - id: tenants
    allow: {{actors: {{group: tenants}}, actions: [{ACTIONS}]}}
  - id: owners
    allow: {{actors: {{group: owners}}, actions: [{ACTIONS}]}}
rows:
  - {{id: all, actors: {{group: owners}}, types: ["*"]}}
  - id: own
    actors: {{group: tenants}}
    types: [Person, Team]
    branches: [main, "work/**", "copy/**"]
    where: tenant = $actor.tenant
  - id: open
    actors: {{group: tenants}}
    types: [Knows]
    branches: [main, "work/**", "copy/**"]
    where: secret is null
  - {{id: edges, actors: {{group: tenants}}, types: [In, Tag, Kind], branches: [main, "work/**"]}}
  - {{id: wide, actors: {{group: tenants}}, types: ["*"], branches: ["wide/**"]}}
"""
# Kinds are visible to tenants, the edges between them are not.
# `ann`, `art`, `abe` and `t1-team` are of tenant 1; `zoe`, `zed` and `t2-team` of tenant 2.
START = """
query start() {
  insert Person { name: "ann", tenant: "t1", mail: "ann@x" }
  insert Person { name: "art", tenant: "t1" }
  insert Person { name: "abe", tenant: "t1" }
  insert Person { name: "zoe", tenant: "t2", mail: "zoe@x" }
  insert Person { name: "zed", tenant: "t2" }
  insert Team { name: "t1-team", tenant: "t1" }
  insert Team { name: "t2-team", tenant: "t2" }
  insert Tag { name: "red" }
  insert Kind { name: "big" }
  insert Kind { name: "small" }
  insert Knows { from: "ann", to: "art" }
  insert Knows { from: "ann", to: "zoe" }
  insert Knows { from: "art", to: "abe", secret: true }
  insert Knows { from: "zoe", to: "zed" }
  insert In { from: "ann", to: "t1-team", since: 1 }
  insert In { from: "zoe", to: "t2-team", since: 1 }
  insert In { from: "abe", to: "t2-team", since: 1 }
  insert Under { from: "small", to: "big" }
}
"""
SECRETS = ("zoe", "zed", "t2-team", "zoe@x")
"""What tenant 1 does not see."""


def make(location):
    policy = Policy.parse(BUNDLE)
    with Graph.init(location, SCHEMA, policy=policy, actor="owner", durability="os") as graph:
        graph.mutate(START)


def open_graph(location):
    """A graph without an actor: use ``for_actor``."""
    return Graph.open(location, policy=Policy.parse(BUNDLE), durability="os")


def denied(action="change", on="main", target=None, actor="ana"):
    """The one text of everything that needs hidden rows."""
    branch = f" on branch '{on}'" if on else ""
    targeting = f" targeting branch '{target}'" if target else ""
    return (
        f"policy denied action '{action}'{branch}{targeting} for actor '{actor}': beyond its view"
    )


def run(graph, statements, **how):
    return graph.mutate(f"query q() {{ {statements} }}", **how)
