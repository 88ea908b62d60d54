"""A random social network with power-law degrees, as arrays and as tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

COMPANIES, CITIES = 2_000, 200
SEED = 7


@dataclass(frozen=True)
class Social:
    """A social network as arrays; a person, a company and a city is a number."""

    age: np.ndarray
    city: np.ndarray
    bios: list[str]
    src: np.ndarray
    dst: np.ndarray
    employee: np.ndarray
    employer: np.ndarray

    @property
    def names(self) -> np.ndarray:
        return np.array([f"person-{number:06d}" for number in range(len(self.age))])


def generate(people: int, edges: int, companies: int = COMPANIES) -> Social:
    """Degrees follow a power law on both ends; no edge is there twice, none is a loop."""
    random = np.random.default_rng(SEED)
    rank = np.arange(1, people + 1)
    giving = random.permutation(rank**-0.55)
    liked = random.permutation(rank**-0.45)
    pairs = np.empty(0, np.int64)
    while len(pairs) < edges:
        more = int((edges - len(pairs)) * 1.3) + 1_000
        src = random.choice(people, more, p=giving / giving.sum())
        dst = random.choice(people, more, p=liked / liked.sum())
        drawn = (src * people + dst)[src != dst]
        pairs = np.unique(np.concatenate([pairs, drawn]))
    pairs = np.sort(random.permutation(pairs)[:edges])
    employee = np.flatnonzero(random.random(people) < 0.8)
    words = _vocabulary(random, 5_000)
    splits = np.arange(1, len(words) + 1) ** -1.0
    spoken = random.choice(len(words), (people, 8), p=splits / splits.sum())
    return Social(
        random.integers(16, 90, people).astype(np.int32),
        random.integers(0, CITIES, people),
        [" ".join(words[word] for word in line) for line in spoken],
        pairs // people,
        pairs % people,
        employee,
        (random.random(len(employee)) ** 2 * companies).astype(np.int64),
    )


def _vocabulary(random: np.random.Generator, size: int) -> list[str]:
    """Words that no stemmer shortens."""
    syllables = [c + v for c in "bdfgklmnprtvz" for v in "aou"]
    actual: dict[str, None] = {}
    while len(actual) < size:
        actual["".join(random.choice(syllables, 4))] = None
    return list(actual)


def tables(social: Social) -> dict[str, pa.Table]:
    names = social.names
    companies = np.array([f"company-{number:04d}" for number in range(COMPANIES)])
    cities = np.array([f"city-{number}" for number in range(CITIES)])
    return {
        "Person": pa.table(
            {
                "name": names,
                "age": social.age,
                "city": cities[social.city],
                "bio": social.bios,
            }
        ),
        "Company": pa.table({"name": companies}),
        "Knows": pa.table({"src": names[social.src], "dst": names[social.dst]}),
        "WorksAt": pa.table({"src": names[social.employee], "dst": companies[social.employer]}),
    }
