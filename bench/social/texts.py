"""The same questions in our language, in Cypher and in SQL, by the name of their row."""

from __future__ import annotations

SCHEMA = """
node Person { name: String @key  age: I32  city: String  bio: String @index }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""

QUERIES = """
query point_lookup($name: String) {
  match { $p: Person { name: $name } }
  return { $p.age }
}
query filter_sort_limit() {
  match { $p: Person  $p.age >= 30  $p.age < 40  $p.city = "city-3" }
  return { $p.name, $p.age }
  order { $p.age desc, $p.name }
  limit 20
}
query hop_1($name: String) {
  match { $a: Person { name: $name }  $a knows $b }
  return { $b.name }
}
query hops_2($name: String) {
  match { $a: Person { name: $name }  $a knows $m  $m knows $b  $b.age > 50 }
  return distinct { $b.name }
}
query walks_3($names: [String]) {
  match { $a: Person  $a.name in $names  $a knows $b  $b knows $c  $c knows $d }
  return { count($d) as n }
}
query people_3($names: [String]) {
  match { $a: Person  $a.name in $names  $a knows $b  $b knows $c  $c knows $d }
  return { count(distinct $d) as n }
}
query reach($name: String) {
  match { $a: Person { name: $name }  $a knows{1,4} $b }
  return { count($b) as n }
}
query same_city_and_company() {
  match { $a knows $b  $a worksAt $c  $b worksAt $c  $a.city = $b.city }
  return { count($a) as n }
}
query cities() {
  match { $a knows $b }
  return { $a.city, count($b) as edges, count(distinct $b) as people }
  order { edges desc, $a.city }
  limit 20
}
query strangers_at_work() {
  match { $p worksAt $c  not { $p knows $q  $q worksAt $c } }
  return { count($p) as n }
}
query triangles() {
  match { $a knows $b  $b knows $c  $a knows $c }
  return { count($a) as n }
}
query from_a_city($city: String) {
  match { $a: Person  $a.city = $city  $a knows $b  $b knows $c }
  return { $c.city, count($a) as walks }
}
query from_cities($cities: [String]) {
  match { $a: Person  $a.city in $cities  $a knows $b  $b knows $c }
  return { $c.city, count($a) as walks }
}
query text_and_2_hops($words: String) {
  match { $p: Person  search($p.bio, $words)  $p knows $m  $m knows $b }
  return { count(distinct $b) as n }
}
"""

CYPHER = {
    "point lookup": "MATCH (p:Person {name: $name}) RETURN p.age",
    "filter, sort, limit": "MATCH (p:Person) WHERE p.age >= 30 AND p.age < 40 "
    "AND p.city = 'city-3' RETURN p.name, p.age ORDER BY p.age DESC, p.name LIMIT 20",
    "1 hop": "MATCH (a:Person {name: $name})-[:Knows]->(b:Person) RETURN b.name",
    "2 hops, distinct, filter": "MATCH (a:Person {name: $name})-[:Knows]->(:Person)-[:Knows]->"
    "(b:Person) WHERE b.age > 50 RETURN DISTINCT b.name",
    "3 hops, 100 starts, walks": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(:Person)"
    "-[:Knows]->(d:Person) WHERE a.name IN $names RETURN count(d)",
    "3 hops, 100 starts, people": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(:Person)"
    "-[:Knows]->(d:Person) WHERE a.name IN $names RETURN count(DISTINCT d)",
    "reach 1..4": "MATCH (a:Person {name: $name})-[:Knows* SHORTEST 1..4]->(b:Person) "
    "WHERE a.name <> b.name RETURN count(b)",
    "same city and company": "MATCH (a:Person)-[:Knows]->(b:Person), (a)-[:WorksAt]->(c:Company), "
    "(b)-[:WorksAt]->(c) WHERE a.city = b.city RETURN count(*)",
    "edges, people per city": "MATCH (a:Person)-[:Knows]->(b:Person) RETURN a.city, "
    "count(*) AS edges, count(DISTINCT b) AS people ORDER BY edges DESC, a.city LIMIT 20",
    "negation": "MATCH (p:Person)-[:WorksAt]->(c:Company) WHERE NOT EXISTS "
    "{ MATCH (p)-[:Knows]->(q:Person)-[:WorksAt]->(c) } RETURN count(*)",
    "triangles": "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person), "
    "(a)-[:Knows]->(c) RETURN count(*)",
    "2 hops from a city, by city": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(c:Person) "
    "WHERE a.city = $city RETURN c.city, count(*)",
    "2 hops from 20 cities, by city": "MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(c:Person) "
    "WHERE a.city IN $cities RETURN c.city, count(*)",
}

# Integers stand for people here: what DuckDB is at its best with.
SQL = {
    "point lookup": "SELECT age FROM person WHERE name = $name",
    "filter, sort, limit": "SELECT name, age FROM person WHERE age >= 30 AND age < 40 "
    "AND city = 'city-3' ORDER BY age DESC, name LIMIT 20",
    "1 hop": "SELECT b.name FROM person a JOIN knows k ON k.src = a.id "
    "JOIN person b ON b.id = k.dst WHERE a.name = $name",
    "2 hops, distinct, filter": "SELECT DISTINCT b.name FROM person a JOIN knows k ON k.src = a.id "
    "JOIN knows l ON l.src = k.dst JOIN person b ON b.id = l.dst "
    "WHERE a.name = $name AND b.age > 50",
    "3 hops, 100 starts, walks": "SELECT count(*) FROM person a JOIN knows k ON k.src = a.id "
    "JOIN knows l ON l.src = k.dst JOIN knows m ON m.src = l.dst WHERE a.name IN $names",
    "3 hops, 100 starts, people": "SELECT count(DISTINCT m.dst) FROM person a "
    "JOIN knows k ON k.src = a.id JOIN knows l ON l.src = k.dst JOIN knows m ON m.src = l.dst "
    "WHERE a.name IN $names",
    "reach 1..4": "WITH RECURSIVE r(id, d) AS (SELECT id, 0 FROM person WHERE name = $name "
    "UNION SELECT k.dst, d + 1 FROM r JOIN knows k ON k.src = r.id WHERE d < 4) "
    "SELECT count(DISTINCT id) FROM r WHERE id <> (SELECT id FROM person WHERE name = $name)",
    "same city and company": "SELECT count(*) FROM knows k JOIN works v ON v.src = k.src "
    "JOIN works w ON w.src = k.dst AND w.dst = v.dst JOIN person a ON a.id = k.src "
    "JOIN person b ON b.id = k.dst WHERE a.city = b.city",
    "edges, people per city": "SELECT a.city, count(*) AS edges, count(DISTINCT k.dst) "
    "FROM knows k JOIN person a ON a.id = k.src GROUP BY a.city ORDER BY edges DESC, a.city "
    "LIMIT 20",
    "negation": "SELECT count(*) FROM works v WHERE NOT EXISTS (SELECT 1 FROM knows k "
    "JOIN works w ON w.src = k.dst WHERE k.src = v.src AND w.dst = v.dst)",
    "triangles": "SELECT count(*) FROM knows x JOIN knows y ON y.src = x.dst "
    "JOIN knows z ON z.src = x.src AND z.dst = y.dst",
    "2 hops from a city, by city": "SELECT c.city, count(*) FROM person a "
    "JOIN knows k ON k.src = a.id JOIN knows l ON l.src = k.dst JOIN person c ON c.id = l.dst "
    "WHERE a.city = $city GROUP BY c.city",
    "2 hops from 20 cities, by city": "SELECT c.city, count(*) FROM person a "
    "JOIN knows k ON k.src = a.id JOIN knows l ON l.src = k.dst JOIN person c ON c.id = l.dst "
    "WHERE a.city IN $cities GROUP BY c.city",
}

OURS = {
    "point lookup": "point_lookup",
    "filter, sort, limit": "filter_sort_limit",
    "1 hop": "hop_1",
    "2 hops, distinct, filter": "hops_2",
    "3 hops, 100 starts, walks": "walks_3",
    "3 hops, 100 starts, people": "people_3",
    "reach 1..4": "reach",
    "same city and company": "same_city_and_company",
    "edges, people per city": "cities",
    "negation": "strangers_at_work",
    "triangles": "triangles",
    "2 hops from a city, by city": "from_a_city",
    "2 hops from 20 cities, by city": "from_cities",
    "text search + 2 hops": "text_and_2_hops",
}
