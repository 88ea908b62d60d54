#!/usr/bin/env bash
# The whole story on the shared memory of an invented research lab: make a graph, load it through
# Spark, ask, branch, change, compare, merge with a conflict, look back, look after it, serve it.
# DEMO_PAPERS sets the size of the lab.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

demo=$PWD
place=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" || true; fi
    rm -rf "$place"
}
trap finish EXIT
export OMNIGRAPH_HOME="$place/operator"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

now() { date +%s%N; }

timed() {
    local start code=0
    start=$(now)
    "$@" || code=$?
    printf '  (%d ms)\n' $((($(now) - start) / 1000000))
    return "$code"
}

run() {
    printf '$ %s\n' "$(shown "$@")"
    timed "$@"
}

refused() {
    printf '$ %s\n' "$(shown "$@")"
    if timed "$@" 2>&1; then
        echo "Error: this should have been refused" >&2
        exit 1
    fi
}

# The command as one would type it: quotes only where a shell needs them.
shown() {
    local word text=""
    [ "$1" = as ] && shift 2
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./=:@+-]+$ ]] || word="'$word'"
        text+="${text:+ }$word"
    done
    printf '%s' "$text"
}

say "1. The schema and the queries are checked before there is any data"
cp "$demo"/*.pg "$demo"/*.gq "$place"
cd "$place"
run omnigraph version
run omnigraph lint --schema schema.pg --query queries.gq
refused omnigraph explain team --schema schema.pg --query broken.gq

say "2. A lab's records, generated; a graph; one commit through Spark, indexes after it"
run python "$demo/generate.py" . "${DEMO_PAPERS:-12000}"
run omnigraph init --schema schema.pg lab.omni
run omnigraph load lab.omni --data lab.jsonl --mode merge --engine spark --as loader
run omnigraph snapshot lab.omni

export OMNIGRAPH_PROFILE=lab
mkdir -p "$OMNIGRAPH_HOME"
printf 'profiles: {lab: {store: %s/lab.omni}}\n' "$place" >"$OMNIGRAPH_HOME/config.yaml"

say "3. Traversal: lineage of a dataset, claims in dispute (the profile 'lab' says which graph)"
run omnigraph query lineage --query queries.gq --params '{"dataset": "dataset-711"}'
run omnigraph query disputed_claims --query queries.gq --params '{"least": 0.97}'
run omnigraph explain running_without_data --query queries.gq --analyze

say "4. Hybrid search: words and vectors, their ranks fused"
run omnigraph query papers_like --query queries.gq --params \
    '{"question": "glacier melt runoff", "vector": [1, 0, 0, 0, 0, 0, 0, 0]}'

say "5. An agent works on a branch; main goes on meanwhile"
before=$(omnigraph commit list --limit 1 | cut -d ' ' -f 1)
run omnigraph branch create review/audit --quiet
run omnigraph mutate close_project --query queries.gq --branch review/audit --as agent-7 \
    --params '{"slug": "project-8"}' --quiet
run omnigraph mutate record_experiment --query queries.gq --branch review/audit --as agent-7 --quiet \
    --params '{"slug": "audit-1", "title": "Audit run", "protocol": "A1", "day": "2026-02-01", "project": "project-8"}'
run omnigraph mutate --as ada --quiet -e \
    'query rename() { update Project set { status: "paused" } where slug = "project-8" }'
run omnigraph diff main review/audit

say "6. Merging finds a conflict; it is decided, and the rest comes along"
refused omnigraph branch merge review/audit --quiet
run omnigraph branch merge review/audit --resolve theirs --as ada --quiet
run omnigraph log --limit 6

say "7. Time travel: the same question before and after"
ask='query status() { match { $p: Project { slug: "project-8" } } return { $p.slug, $p.status } }'
run omnigraph query -e "$ask" --snapshot "$before"
run omnigraph query -e "$ask"

say "8. Looking after it: parts are put together, and a report says what is left to do"
run omnigraph optimize --quiet
run omnigraph doctor
run omnigraph verify
run omnigraph query lineage --query queries.gq --params '{"dataset": "dataset-711"}' --format csv

say "9. From Python: a writer is killed in the middle, and nothing of it is seen"
run python "$demo/graph.py"

say "10. A server, a policy and two actors: the agent drafts on a branch, ada publishes"
cp "$demo/lab.policy.yaml" "$place"
mkdir served
cp "$demo/queries.gq" served
echo '{"ada": "token-of-ada", "agent-7": "token-of-the-agent"}' >tokens.json
export OMNIGRAPH_SERVER_BEARER_TOKENS_FILE="$place/tokens.json"
printf '$ omnigraph serve --store lab.omni --policy lab.policy.yaml --queries served &\n'
# As a module: the signal at the end must reach the server itself, not a program in front of it.
python -m omnigraph.cli serve --store lab.omni --policy lab.policy.yaml --queries served \
    --bind 127.0.0.1:0 --workers 2 >served/address 2>served/log &
server=$!
for _ in $(seq 600); do
    grep -q LISTEN_ADDR served/address && break
    kill -0 "$server" 2>/dev/null || { cat served/log >&2; exit 1; }
    sleep 0.1
done
address=http://$(sed -n 's/^OMNIGRAPH_LISTEN_ADDR=//p' served/address)
printf 'servers: {lab: {url: "%s"}}\nprofiles: {lab: {server: lab, default_graph: lab}}\n' \
    "$address" >"$OMNIGRAPH_HOME/config.yaml"
as() { OMNIGRAPH_TOKEN_LAB=$1 "${@:2}"; }
agent() { printf 'agent-7'; run as token-of-the-agent "$@"; }
ada() { printf 'ada'; run as token-of-ada "$@"; }
agent omnigraph query project_team --params '{"project": "project-8"}' --format csv
agent omnigraph branch create draft/agent-7 --quiet
agent omnigraph mutate record_experiment --branch draft/agent-7 \
    --params '{"slug": "audit-2", "title": "Second audit", "protocol": "A2", "day": "2026-02-02", "project": "project-8"}'
printf 'agent-7'
refused as token-of-the-agent omnigraph branch merge draft/agent-7 --quiet
ada omnigraph branch merge draft/agent-7 --quiet
run omnigraph log --store lab.omni --limit 2
kill "$server"
wait "$server" && echo "the server has finished its requests and ended"
server=

say "Done."
