"""Lets ``python -m omnigraph.cli`` run the command."""

from __future__ import annotations

import sys

from omnigraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
