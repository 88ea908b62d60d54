"""Writes the records of an invented research lab, always the same for the same size.

Usage: python generate.py FOLDER [PAPERS]

Everything hangs together: people are members of projects, projects run experiments, experiments
produce datasets and support or contradict the claims of papers. A paper is about one topic, and
its vector points in the direction of that topic.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

Record = dict[str, Any]

TOPICS = {
    "glacier": ("ice", "melt", "moraine", "runoff", "albedo"),
    "lichen": ("spore", "bark", "colony", "nitrogen", "growth"),
    "aerosol": ("particle", "haze", "sulphate", "droplet", "scatter"),
    "river": ("sediment", "delta", "flood", "turbidity", "discharge"),
    "bat": ("echo", "roost", "migration", "call", "forage"),
    "soil": ("carbon", "root", "moisture", "microbe", "compaction"),
    "reef": ("coral", "bleaching", "larva", "current", "acidity"),
    "storm": ("lightning", "updraft", "hail", "radar", "front"),
}
ACTIONS = ("limits", "explains", "delays", "doubles", "follows", "masks", "predicts", "drives")
GIVEN = [
    "Ada",
    "Bo",
    "Chidi",
    "Dora",
    "Emre",
    "Fatou",
    "Goran",
    "Hana",
    "Ines",
    "Jun",
    "Kofi",
    "Lena",
    "Mina",
    "Nils",
    "Oya",
    "Pia",
    "Rui",
    "Sena",
]
FAMILY = [
    "Abara",
    "Berg",
    "Castro",
    "Dahl",
    "Evans",
    "Fujita",
    "Grau",
    "Haas",
    "Ito",
    "Jansen",
    "Keita",
    "Lund",
    "Moreau",
    "Novak",
]
ROLES = ("student", "student", "postdoc", "staff", "principal-investigator")
FIRST = date(2015, 1, 1)


class Lab:
    """One lab of a size, told record by record: nodes before edges."""

    def __init__(self, papers: int) -> None:
        self.random = random.Random(7)
        self.papers = papers
        self.people = max(40, papers // 10)
        self.projects = max(20, papers // 20)
        self.experiments = papers
        self.topics = list(TOPICS)

    def records(self) -> Iterator[Record]:
        yield from self.nodes()
        yield from self.edges()

    # -- nodes ---------------------------------------------------------------------------

    def nodes(self) -> Iterator[Record]:
        pick = self.random
        for number in range(self.people):
            name = f"{pick.choice(GIVEN)} {pick.choice(FAMILY)}"
            handle = f"{name.lower().replace(' ', '-')}-{number}"
            yield node(
                "Person",
                handle=handle,
                name=name,
                role=ROLES[number % len(ROLES)],
                joined=self.day(),
                languages=pick.sample(["Python", "R", "Julia", "C"], 2),
            )
        for number in range(60):
            yield node(
                "Instrument",
                serial=f"in-{number}",
                model=f"{pick.choice(self.topics).title()}Meter {number % 9}",
                site=pick.choice(["basement", "roof", "field-station"]),
                calibrated=self.day(),
            )
        for number in range(self.projects):
            topic = self.topic(number)
            yield node(
                "Project",
                slug=f"project-{number}",
                title=f"{topic.title()} {pick.choice(TOPICS[topic])} watch {number}",
                status=pick.choice(["proposed", "running", "paused", "done"])
                if number % 4
                else "running",
                budget=float(pick.randrange(10_000, 900_000)),
                started=self.day(),
            )
        for number in range(self.experiments):
            topic = self.topic(number)
            yield node(
                "Experiment",
                slug=f"experiment-{number}",
                title=f"{topic.title()} run {number}",
                protocol=f"P{number % 400}",
                run_on=(FIRST + timedelta(days=number // 400)).isoformat(),
                repeat=number % 7,
                outcome=pick.choice(["confirmed", "refuted", "inconclusive", None]),
            )
            yield node(
                "Dataset",
                slug=f"dataset-{number}",
                title=f"{topic.title()} measurements {number}",
                license=pick.choice(["cc0", "cc-by", "restricted"]),
                rows=pick.randrange(1_000, 90_000_000),
            )
        for number in range(self.papers):
            topic = self.topic(number)
            yield node(
                "Paper",
                slug=f"paper-{number}",
                title=f"How {self.words(topic)} {pick.choice(ACTIONS)} {self.words(topic)}",
                abstract=" ".join(f"{self.words(topic)} {pick.choice(ACTIONS)}" for _ in range(5)),
                abstract_vec=self.vector(topic),
                year=2012 + number % 14,
                citations=pick.randrange(0, 400),
                keywords=[topic, *pick.sample(TOPICS[topic], 2)],
            )
        for number in range(self.papers // 4):
            topic = self.topic(number)
            word = self.words(topic)
            yield node(
                "Claim",
                slug=f"claim-{number}",
                title=f"{word} claim {number}",
                text=f"{word} {pick.choice(ACTIONS)} {self.words(topic)} in every season",
                confidence=round(pick.random(), 2),
            )

    # -- edges ---------------------------------------------------------------------------

    def edges(self) -> Iterator[Record]:
        pick = self.random
        handles = [record["data"]["handle"] for record in Lab(self.papers).first_people()]
        for number in range(self.projects):
            team = pick.sample(handles, 4)
            for handle in team:
                yield edge("MemberOf", handle, f"project-{number}", since=self.day())
            yield edge("Leads", handles[number % len(handles)], f"project-{number}")
        for number in range(self.experiments):
            yield edge("PartOf", f"experiment-{number}", f"project-{number % self.projects}")
            yield edge("MeasuredWith", f"experiment-{number}", f"in-{pick.randrange(60)}")
            # One running project in twenty has nothing to show yet.
            if number % self.projects % 20 != 4:
                yield edge("Produced", f"experiment-{number}", f"dataset-{number}")
            if number:
                origin = pick.randrange(number)
                yield edge("DerivedFrom", f"dataset-{number}", f"dataset-{origin}", method="clean")
            claim = f"claim-{pick.randrange(max(1, self.papers // 4))}"
            kind = "Contradicts" if number % 4 == 0 else "Supports"
            strength = round(pick.random(), 2)
            yield edge(kind, f"experiment-{number}", claim, strength=strength)
        for number in range(self.papers):
            for position, handle in enumerate(pick.sample(handles, 2), 1):
                yield edge("Wrote", handle, f"paper-{number}", position=position)
            if number:
                yield edge("Cites", f"paper-{number}", f"paper-{pick.randrange(number)}")
            if number % 4 == 0:
                yield edge("States", f"paper-{number}", f"claim-{number // 4}")

    def first_people(self) -> Iterator[Record]:
        for record, _ in zip(self.nodes(), range(self.people), strict=False):
            yield record

    # -- words and numbers ---------------------------------------------------------------

    def topic(self, number: int) -> str:
        return self.topics[number % len(self.topics)]

    def words(self, topic: str) -> str:
        return f"{topic} {self.random.choice(TOPICS[topic])}"

    def day(self) -> str:
        return (FIRST + timedelta(days=self.random.randrange(4_000))).isoformat()

    def vector(self, topic: str) -> list[float]:
        """Near the axis of the topic, with some noise, of length one."""
        axis = self.topics.index(topic)
        raw = [self.random.gauss(1.0 if at == axis else 0.0, 0.15) for at in range(8)]
        length = math.sqrt(sum(value * value for value in raw))
        return [round(value / length, 5) for value in raw]


def node(type_name: str, **data: Any) -> Record:
    return {"type": type_name, "data": data}


def edge(type_name: str, src: str, dst: str, **data: Any) -> Record:
    return {"edge": type_name, "from": src, "to": dst, "data": data}


def main() -> None:
    folder = Path(sys.argv[1])
    papers = int(sys.argv[2]) if len(sys.argv) > 2 else 12_000
    count = 0
    with Path(folder, "lab.jsonl").open("w", encoding="utf-8") as file:
        for record in Lab(papers).records():
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
            count += 1
    size = Path(folder, "lab.jsonl").stat().st_size
    print(f"wrote {count:,} records, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
