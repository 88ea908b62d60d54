"""A program that fills a disk and frees it again, until its input ends.

``python filler.py FILE MOST SEED`` writes to one file, at most so many bytes. It shrinks the file
by a random amount as soon as the disk is full, and leaves that free for a few milliseconds.
"""

from __future__ import annotations

import random
import select
import sys

_BLOCK = 4096
_LONGEST = 0.03


def main(path: str, most: int, seed: int) -> None:
    chance = random.Random(seed)
    with open(path, "wb", buffering=0) as file:
        while not select.select([sys.stdin], [], [], chance.uniform(0, _LONGEST))[0]:
            try:
                while file.tell() < most:
                    file.write(bytes(_BLOCK))
            except OSError:
                pass
            file.seek(chance.randrange(file.tell() + 1))
            file.truncate()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
