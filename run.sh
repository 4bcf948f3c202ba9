#!/usr/bin/env bash
# Installs what is missing, builds Kuruma and shows it answering a prompt (make run).
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$root/tools/setup.sh"
kuruma_setup
exec make --no-print-directory -C "$root" run
