#!/usr/bin/env bash
# Runs every client against `kuruma serve`. Makes their environments in build/ when the pinned packages
# changed. $KURUMA_BINARY: the program. $CLIENTS: only these of "python langchain js aiperf guidellm"
# (guidellm needs 6 GB).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
build=$root/build
source "$root/tools/venv.sh"
clients=${CLIENTS:-python langchain js aiperf guidellm}
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

make_venv "$build/clients-venv" "$here/requirements.txt"
pytest=("$build/clients-venv/bin/python" -m pytest -q -p no:cacheprovider)

run_python() { "${pytest[@]}" "$here/python"; }
run_langchain() { "${pytest[@]}" "$here/langchain"; }
run_js() {
  command -v npm >/dev/null || { echo "npm is missing (Node 20 or later)" && exit 1; }
  packages
  python3 "$here/js/run.py" "$build/clients-js"
}
run_aiperf() {
  make_venv "$build/aiperf-venv" "$here/load/aiperf.txt"
  AIPERF=$build/aiperf-venv/bin/aiperf "${pytest[@]}" "$here/load/test_aiperf.py"
}
run_guidellm() {
  make_venv "$build/guidellm-venv" "$here/load/guidellm.txt"
  GUIDELLM=$build/guidellm-venv/bin/guidellm "${pytest[@]}" "$here/load/test_guidellm.py"
}

failed=()
for client in $clients; do
  [[ $(type -t "run_$client") == function ]] || { echo "run.sh: no client $client" >&2 && exit 2; }
  echo "== $client"
  set +e  # a condition around it would let it go on after errors
  (set -e && "run_$client")
  status=$?
  set -e
  ((status == 0)) || failed+=("$client")
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}" && exit 1; }
