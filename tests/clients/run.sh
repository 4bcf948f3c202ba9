#!/usr/bin/env bash
# Runs every client against `kuruma serve`. Makes build/clients-venv and build/clients-js when their
# pinned packages changed. $KURUMA_BINARY: the program.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
build=$root/build
source "$root/tools/venv.sh"
export KURUMA_BINARY=${KURUMA_BINARY:-$build/release/kuruma} PYTHONDONTWRITEBYTECODE=1

packages() {  # of JavaScript; Node finds them beside the tests, so those are copied
  mkdir -p "$build/clients-js"
  cp "$here"/js/*.mjs "$here/js/package.json" "$build/clients-js/"
  if cmp -s "$here/js/package-lock.json" "$build/clients-js/installed"; then return 0; fi
  echo "making $build/clients-js from $here/js/package-lock.json"
  cp "$here/js/package-lock.json" "$build/clients-js/"
  (cd "$build/clients-js" && npm ci --no-audit --no-fund --ignore-scripts)
  cp "$here/js/package-lock.json" "$build/clients-js/installed"
}

failed=0
suite() {  # suite NAME COMMAND...
  echo "== $1"
  "${@:2}" || failed=1
}
make_venv "$build/clients-venv" "$here/requirements.txt"
pytest=("$build/clients-venv/bin/python" -m pytest -q -p no:cacheprovider)
suite "openai and anthropic for Python" "${pytest[@]}" "$here/python"
suite "LangChain" "${pytest[@]}" "$here/langchain"
if command -v npm >/dev/null; then
  packages
  suite "openai for JavaScript, AI SDK" python3 "$here/js/run.py" "$build/clients-js"
else
  echo "JavaScript clients: not run, since npm is missing (Node 20 or later)"
  failed=1
fi
exit "$failed"
