#!/usr/bin/env bash
# Three prompts for the bundled model: a question, JSON, a tool call. $KURUMA is the program.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
kuruma=${KURUMA:-$here/../../build/release/kuruma}
export NO_COLOR=1

say() { printf '\n== %s\n' "$*"; }

say "A question about Kuruma: kuruma chat --prompt \"${PROMPT:=What does inspect do?}\""
"$kuruma" chat --prompt "$PROMPT" </dev/null

say "JSON of a given schema: kuruma generate --messages docs/examples/order.json"
"$kuruma" --log-level error generate --messages "$here/order.json" </dev/null

say 'A tool call: kuruma chat --tools docs/examples/tools.json --prompt "How is the weather in Lisbon now?"'
"$kuruma" chat --tools "$here/tools.json" --prompt "How is the weather in Lisbon now?" </dev/null

say "On a terminal ./run.sh stays in the chat; \"kuruma --help\" lists everything else."
