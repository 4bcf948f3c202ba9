#!/usr/bin/env bash
# What ./run.sh shows: the server runs, its page and an example request are printed; on a terminal a
# chat follows (PROMPT is its first question), otherwise a demonstration. The server ends with it.
# $KURUMA is the program, PORT where the server listens (any free port if that one is taken).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export KURUMA=${KURUMA:-$here/../../build/release/kuruma}
export PROMPT=${PROMPT:-What does inspect do?}
summary=$(mktemp)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null; wait 2>/dev/null; rm -f "$summary"' EXIT

start_server() {
  "$KURUMA" --log-level error serve --port "$1" --access-log false --log-level error >"$summary" 2>&1 &
  server=$!
  while kill -0 "$server" 2>/dev/null; do
    grep -q '^  ready ' "$summary" && return 0
    sleep 0.05
  done
  wait "$server" || true
  return 1
}

start_server "${PORT:-8000}" || start_server 0 || { cat "$summary" >&2; exit 1; }
url=$(sed -n 's/^  ready *//p' "$summary")
cat "$summary"
cat <<TEXT

A page to talk with it: $url/
An example request:

  curl $url/v1/chat/completions -d '{"messages": [{"role": "user", "content": "What is Kuruma?"}]}'

TEXT
python3 - "$url" <<'PYTHON'
import json, sys, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "What is Kuruma?"}]}).encode()
with urllib.request.urlopen(sys.argv[1] + "/v1/chat/completions", body, timeout=60) as answer:
    message = json.load(answer)["choices"][0]["message"]
print("  ->", message["content"])
PYTHON
if [[ -t 0 && -t 1 ]]; then
  "$KURUMA" chat --prompt "$PROMPT"
else
  "$here/demonstration.sh"
fi
