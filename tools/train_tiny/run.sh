#!/usr/bin/env bash
# Trains the bundled model from nothing, or goes on with a run that was cut:
#   tools/train_tiny/run.sh                     2.5 hours, working folder build/train_tiny
#   tools/train_tiny/run.sh --minutes 30 --out build/short
# Arguments replace the defaults below; `--help` lists them.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tools/venv.sh"
make_venv "$root/build/train-venv" "$root/tools/train_tiny/requirements.txt"  # downloads PyTorch once
arguments=("$@")
given() { printf "%s\n" "${arguments[@]:-}" | grep -q -E -e "^$1(=|$)"; }
given --minutes || given --steps || arguments+=(--minutes 150)
given --out || arguments+=(--out "$root/build/train_tiny")
if ! given --kuruma && [[ -x $root/build/release/kuruma ]]; then
  arguments+=(--kuruma "$root/build/release/kuruma")
fi
PYTHONPATH=$root/tools exec "$root/build/train-venv/bin/python" -m train_tiny run "${arguments[@]}"
