#!/usr/bin/env bash
# Installs what is missing, builds Kuruma and runs every test (make test).
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$root/tools/setup.sh"
kuruma_setup tests
exec make --no-print-directory -C "$root" test
