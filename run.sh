#!/usr/bin/env bash
# Installs what is missing, builds Kuruma, starts the server, answers a question and stays in the chat (make run).
# Without a terminal it prints a demonstration of three prompts instead.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$root/tools/setup.sh"
kuruma_setup
exec make --no-print-directory -C "$root" run
