"""An idempotency key stands for one write: what makes two calls the same, and what does not."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError
from tests.write.world import heads, rows, run

NOTE = 'insert Note { text: "a" }'

OTHERS = {
    "another value": 'insert Note { text: "b" }',
    "one statement more": f"{NOTE} {NOTE}",
    "another property": 'insert Note { text: "a", stars: 1 }',
    "another type": 'insert Company { name: "a" }',
    "another kind of statement": 'update Note set { text: "a" } where text = "a"',
    "a delete": 'delete Note where text = "a"',
}


@pytest.mark.parametrize("statements", OTHERS.values(), ids=list(OTHERS))
def test_another_text_under_the_same_key_is_refused(people, statements):
    first = run(people, NOTE, idempotency_key="k")
    after = heads(people)
    with pytest.raises(InputError, match="'k' was used for another write") as caught:
        run(people, statements, idempotency_key="k")
    assert caught.value.details == {"commit_id": first.commit_id}
    assert heads(people) == after
    assert run(people, NOTE, idempotency_key="k") == first


def test_another_condition_under_the_same_key_is_refused(people):
    change = "update Person set {{ age: 1 }} where name = {}"
    run(people, change.format('"Ada"'), idempotency_key="k")
    with pytest.raises(InputError, match="another write"):
        run(people, change.format('"Bob"'), idempotency_key="k")
    with pytest.raises(InputError, match="another write"):
        run(people, change.format('"Ada" or age = 1'), idempotency_key="k")


def test_another_name_under_the_same_key_is_refused(people):
    people.mutate(f"query one() {{ {NOTE} }}", idempotency_key="k")
    with pytest.raises(InputError, match="another write"):
        people.mutate(f"query two() {{ {NOTE} }}", idempotency_key="k")


def test_the_layout_of_a_text_does_not_count(people):
    """Nor do comments, other queries of the same file, and what describes the query."""
    first = people.mutate('query q() { insert Note { text: "a", stars: 1 } }', idempotency_key="k")
    spread = """
    // the same
    query other() { delete Note where text = "z" }
    query q() @description("why")
    {
      insert Note {
        text: "a", /* and */
        stars: 1
      }
    }
    """
    assert people.mutate(spread, "q", idempotency_key="k") == first
    assert rows(people, "Note", "text") == ["a"]


def test_the_time_of_the_call_does_not_count(people):
    """Each call has a ``now()`` of its own; a repeat changes nothing all the same."""
    statement = 'insert Person { name: "Eve", joined: now() }'
    first = run(people, statement, idempotency_key="k")
    before = rows(people, "Person", "name", "joined")
    assert run(people, statement, idempotency_key="k") == first
    assert rows(people, "Person", "name", "joined") == before


def test_a_repeat_is_known_after_reopening(people):
    first = run(people, NOTE, idempotency_key="k")
    with Graph.open(people.uri, durability="os") as again:
        assert run(again, NOTE, idempotency_key="k") == first
        with pytest.raises(InputError, match="another write"):
            run(again, OTHERS["another value"], idempotency_key="k")


def test_a_load_is_known_by_its_mode_and_its_data(people):
    """Files may lie elsewhere the second time, or come as a stream."""
    records = [{"type": "Note", "data": {"text": "a"}}, {"type": "Note", "data": {"text": "b"}}]
    first = people.load(records, idempotency_key="k")
    repeated = people.load(iter(records), idempotency_key="k")
    assert repeated.commit_id == first.commit_id
    assert rows(people, "Note", "text") == ["a", "b"]
    for others in (records[:1], records[::-1], [records[0]] * 2, [*records, records[0]]):
        with pytest.raises(InputError, match="another write"):
            people.load(others, idempotency_key="k")
    with pytest.raises(InputError, match="another write"):
        people.load(records, "append", idempotency_key="k")
    with pytest.raises(InputError, match="another write"):
        run(people, NOTE, idempotency_key="k")
