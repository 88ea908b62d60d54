#!/usr/bin/env bash
# Shows what OmniGraph does today, on a research lab's shared memory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

run() {
    printf '$ %s\n' "$*"
    "$@"
}

refused() {
    printf '$ %s\n' "$*"
    if "$@"; then
        echo "Error: this should have been refused" >&2
        exit 1
    fi
}

say "1. The program and its storage format"
run omnigraph version

say "2. The schema and the queries are checked against each other"
run omnigraph lint --schema schema.pg --query queries.gq

say "3. They are in canonical layout"
run omnigraph fmt --check schema.pg schema_v2.pg queries.gq
echo "nothing to change"

say "4. The plan of a query"
run omnigraph explain running_without_data --schema schema.pg --query queries.gq

say "5. What a new schema would change"
run omnigraph schema plan schema.pg --schema schema_v2.pg

say "6. A broken query: every mistake at once, with its place"
refused omnigraph explain team --schema schema.pg --query broken.gq

say "7. A graph: branches, tags, a writer that is killed in the middle, and queries"
run python graph.py

say "Done."
