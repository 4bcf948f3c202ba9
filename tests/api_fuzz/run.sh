#!/usr/bin/env bash
# Sends requests made from docs/openapi.json to a scripted server: none may be answered 5xx, and
# every answer must be as described. Needs schemathesis (requirements.txt); make api-fuzz has it.
# Usage: run.sh KURUMA SCHEMATHESIS EXAMPLES
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
kuruma=$1 schemathesis=$2 examples=$3
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

cat >"$work/script.jsonl" <<'END'
{"match": "think", "text": "Hm.</think>Fine."}
{"text": "Fine."}
END
"$kuruma" serve --port 0 --access-log false --scripted "$work/script.jsonl" >"$work/summary" &
server=$!
for ((i = 0; i < 300; i++)); do
  grep -q '^  ready' "$work/summary" && break
  sleep 0.1
done
url=$(awk '/^  ready/ {print $2}' "$work/summary")

# One path of each kind; the others are aliases.
cd "$work"
"$schemathesis" run "$root/docs/openapi.json" --url "$url" --max-examples "$examples" \
  --exclude-path-regex '^/(chat|beta|anthropic|completions|responses|models|ping)' \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
  --suppress-health-check all --no-color
kill "$server"
wait "$server"
