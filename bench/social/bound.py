"""Plain NumPy on arrays in memory: what no engine can be much faster than."""

from __future__ import annotations

import numpy as np

from social.engines import Params, Rows
from social.network import CITIES, SEED, Social


class Bound:
    """Plain walks over compressed rows in memory: how fast it could be."""

    name = "numpy"

    def __init__(self, social: Social) -> None:
        self._s = social
        count = len(social.age)
        order = np.argsort(social.src, kind="stable")
        self._next = social.dst[order]
        self._start = np.concatenate([[0], np.cumsum(np.bincount(social.src, minlength=count))])
        self._names = social.names
        self._number = {name: number for number, name in enumerate(self._names.tolist())}
        self._employer = np.full(count, -1)
        self._employer[social.employee] = social.employer
        self._words: dict[str, list[int]] = {}
        for number, bio in enumerate(social.bios):
            for word in set(bio.split()):
                self._words.setdefault(word, []).append(number)
        self._walks = {
            "point lookup": self._point,
            "filter, sort, limit": self._scan,
            "1 hop": self._hop,
            "2 hops, distinct, filter": self._hops,
            "3 hops, 100 starts, walks": self._three_walks,
            "3 hops, 100 starts, people": self._three_people,
            "reach 1..4": self._reach,
            "same city and company": self._pattern,
            "edges, people per city": self._cities,
            "negation": self._negation,
            "triangles": self._triangles,
            "2 hops from a city, by city": self._from_a_city,
            "2 hops from 20 cities, by city": self._from_cities,
            "text search + 2 hops": self._text,
        }

    def responses(self, row: str) -> bool:
        return row in self._walks

    def run(self, row: str, params: Params) -> Rows:
        return self._walks[row](params)

    def rows(self, actual: Rows) -> Rows:
        return actual

    def close(self) -> None:
        """Nothing is held open."""

    def _expand(self, nodes: np.ndarray) -> np.ndarray:
        """The targets of all edges of some people, one after the other."""
        first, counts = self._start[nodes], self._start[nodes + 1] - self._start[nodes]
        ends = np.cumsum(counts)
        steps = np.arange(ends[-1] if len(ends) else 0)
        return self._next[steps + np.repeat(first - (ends - counts), counts)]

    def _set(self, nodes: np.ndarray) -> np.ndarray:
        """Each of some people once, in order: a mark for everybody is cheaper than sorting."""
        seen = np.zeros(len(self._s.age), bool)
        seen[nodes] = True
        return np.flatnonzero(seen)

    def _point(self, params: Params) -> Rows:
        return [(int(self._s.age[self._number[params["name"]]]),)]

    def _scan(self, params: Params) -> Rows:
        age = self._s.age
        actual = np.flatnonzero((age >= 30) & (age < 40) & (self._s.city == 3))
        best = actual[np.lexsort((actual, -age[actual]))][:20]
        return list(zip(self._names[best].tolist(), age[best].tolist(), strict=True))

    def _hop(self, params: Params) -> Rows:
        actual = self._expand(np.array([self._number[params["name"]]]))
        return [(name,) for name in self._names[actual].tolist()]

    def _hops(self, params: Params) -> Rows:
        near = self._expand(np.array([self._number[params["name"]]]))
        actual = self._set(self._expand(near))
        return [(name,) for name in self._names[actual[self._s.age[actual] > 50]].tolist()]

    def _three(self, params: Params) -> np.ndarray:
        nodes = np.array([self._number[name] for name in params["names"]])
        return self._expand(self._expand(nodes))

    def _three_walks(self, params: Params) -> Rows:
        ends = self._three(params)
        return [(int((self._start[ends + 1] - self._start[ends]).sum()),)]

    def _three_people(self, params: Params) -> Rows:
        return [(len(self._set(self._expand(self._set(self._three(params))))),)]

    def _reach(self, params: Params) -> Rows:
        start = self._number[params["name"]]
        seen = np.zeros(len(self._s.age), bool)
        seen[start] = True
        frontier = np.array([start])
        for _ in range(4):
            actual = self._set(self._expand(frontier))
            frontier = actual[~seen[actual]]
            seen[frontier] = True
        return [(int(seen.sum()) - 1,)]

    def _pattern(self, params: Params) -> Rows:
        src, dst = self._s.src, self._s.dst
        same = (self._employer[src] == self._employer[dst]) & (self._employer[src] >= 0)
        return [(int((same & (self._s.city[src] == self._s.city[dst])).sum()),)]

    def _cities(self, params: Params) -> Rows:
        city = self._s.city[self._s.src]
        edges = np.bincount(city, minlength=CITIES)
        met = np.zeros((CITIES, len(self._s.age)), bool)
        met[city, self._s.dst] = True
        people = met.sum(axis=1)
        top = sorted((-int(edges[at]), f"city-{at}", at) for at in range(CITIES))[:20]
        return [(name, -count, int(people[at])) for count, name, at in top]

    def _negation(self, params: Params) -> Rows:
        src, dst = self._s.src, self._s.dst
        meets = src[(self._employer[src] == self._employer[dst]) & (self._employer[src] >= 0)]
        alone = np.ones(len(self._s.age), bool)
        alone[meets] = False
        return [(int(alone[self._s.employee].sum()),)]

    def _triangles(self, params: Params) -> Rows:
        count = len(self._s.age)
        existing = np.sort(self._s.src * count + self._s.dst)
        ends = self._expand(self._s.dst)
        counts = self._start[self._s.dst + 1] - self._start[self._s.dst]
        pairs = np.repeat(self._s.src, counts) * count + ends
        at = np.minimum(np.searchsorted(existing, pairs), len(existing) - 1)
        return [(int((existing[at] == pairs).sum()),)]

    def _from_a_city(self, params: Params) -> Rows:
        return self._from_cities({"cities": [params["city"]]})

    def _from_cities(self, params: Params) -> Rows:
        cities = [int(city.removeprefix("city-")) for city in params["cities"]]
        starts = np.flatnonzero(np.isin(self._s.city, cities))
        ends = self._expand(self._expand(starts))
        walks = np.bincount(self._s.city[ends], minlength=CITIES)
        return [(f"city-{at}", int(walks[at])) for at in np.flatnonzero(walks)]

    def _text(self, params: Params) -> Rows:
        lists = [self._words.get(word, []) for word in params["words"].split()]
        starts = np.unique(np.concatenate([np.array(item, np.int64) for item in lists]))
        return [(len(self._set(self._expand(self._set(self._expand(starts))))),)]

    def params(self) -> list[Params]:
        """Eight people of ordinary degree, a hundred starts, cities, and two rare words."""
        degree = np.diff(self._start)
        ordinary = np.flatnonzero((degree >= 15) & (degree <= 25))
        random = np.random.default_rng(SEED)
        rare = sorted(word for word, people in self._words.items() if 8 <= len(people) <= 15)
        starts = self._names[random.choice(ordinary, 100, replace=False)].tolist()
        return [
            {
                "name": str(self._names[number]),
                "names": starts,
                "city": f"city-{number % CITIES}",
                "cities": [f"city-{(number + more) % CITIES}" for more in range(20)],
                "words": " ".join(random.choice(rare, 2)),
            }
            for number in random.choice(ordinary, 8, replace=False).tolist()
        ]
