#!/usr/bin/env bash
# Puts load on `kuruma serve` with scripted answers and keeps the figures, with commands, in
# bench/results/MACHINE/serve.json. Server and load share this machine's processors.
# Usage: bench/serve_load.sh [MACHINE]      (default: processor and count, as bench/measure.sh)
#   SECONDS_EACH=10  of every mode    SOAK_SECONDS=90  (600 for the ten-minute run)
#   STREAMS=2000     at once          KURUMA=...       another server to compare with
# Compare CPU time per request and per token from run to run, latencies only on a quiet machine.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/machine.sh
seconds=${SECONDS_EACH:-10}
soak_seconds=${SOAK_SECONDS:-90}
streams=${STREAMS:-2000}
kuruma=${KURUMA:-build/release/kuruma}
load=build/release/serve_load
ulimit -n "$(ulimit -Hn)"
work=$(mktemp -d)
server=
stop_server() {
  [[ -z $server ]] && return
  kill -TERM "$server" 2>/dev/null && wait "$server" || true
  server=
}
trap 'stop_server; rm -rf "$work"' EXIT

cat >"$work/script.jsonl" <<'EOF'
{"match":"paced","text":" word","repeat":true,"delay_ms":100}
{"match":"stream","text":" word","repeat":true,"delay_ms":5}
{"match":"model","text":"Yes, I am.","delay_ms":10}
{"match":"short","text":"Yes, I am."}
EOF

# start_server OPTIONS...: sets server (its process) and port.
start_server() {
  "$kuruma" serve --port 0 --scripted "$work/script.jsonl" "$@" >"$work/out" 2>"$work/log" &
  server=$!
  port=
  for _ in $(seq 600); do
    port=$(sed -n 's/^ *ready .*:\([0-9]*\)$/\1/p' "$work/out")
    [[ -n $port ]] && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/log" >&2
  echo "serve_load.sh: the server did not start" >&2
  exit 1
}

# measure NAME OPTIONS...: one run of the generator, into NAME.json.
runs=()
measure() {
  local name=$1
  shift
  echo "== $name: serve_load $*" >&2
  "$load" --port "$port" --pid "$server" "$@" >"$work/$name.json"
  echo "$server_options | serve_load $*" >"$work/$name.command"
  runs+=("$name")
}
field() { python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))[sys.argv[2]]))' "$work/$1.json" "$2"; }

server_options="--max-sequences 64 --max-queue 192"
start_server $server_options
measure short --mode short --seconds "$seconds" --connections 64
most=$(field short requests_per_s)
measure goal_half_load --mode rate --seconds "$seconds" --rate 750 # half of the goal of 1,500
measure half_load --mode rate --seconds "$seconds" --rate $((most / 2))
measure overload --mode rate --seconds "$seconds" --rate $((most * 2))
stop_server
server_options="$server_options --access-log false"
start_server $server_options
measure short_without_log --mode short --seconds "$seconds" --connections 64
stop_server

# The model is the limit, as it is in earnest: 16 sequences, 10 ms a step.
server_options="--max-sequences 16 --max-queue 64"
start_server $server_options
measure model_most --mode short --prompt model --seconds "$seconds" --connections 32
most=$(field model_most requests_per_s)
measure model_half_load --mode rate --prompt model --seconds "$seconds" --rate $((most / 2))
measure model_overload --mode rate --prompt model --seconds "$seconds" --rate $((most * 2))
stop_server

server_options="--max-sequences 4096 --max-step-tokens 8192 --max-queue 4096"
start_server $server_options
for share in 2 1; do
  measure "streams_$((streams / share))" --mode streams --prompt paced --max-tokens 60000 \
    --seconds "$seconds" --delay-ms 100 --streams $((streams / share)) --ramp 3
done
stop_server

server_options="--max-sequences 64 --max-queue 192"
start_server $server_options
measure soak --mode soak --seconds "$soak_seconds"
stop_server

python3 - "$work" "$out/serve.json" "${runs[@]}" <<'EOF'
import json, os, pathlib, subprocess, sys
work, out, names = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
runs = {}
for name in names:
    runs[name] = {"command": (work / f"{name}.command").read_text().strip()}
    runs[name] |= json.loads((work / f"{name}.json").read_text())
git = lambda *a: subprocess.run(["git", *a], capture_output=True, text=True)
commit = git("rev-parse", "HEAD").stdout.strip() or "unknown"
if git("diff", "--quiet", "HEAD").returncode:
    commit += " with changes"
about = {"commit": commit, "processors": os.cpu_count(),
         "load_average_after": pathlib.Path("/proc/loadavg").read_text().split()[:3],
         "note": "server options | generator options; both share the processors"}
json.dump({"about": about, "runs": runs}, open(out, "w"), indent=1)
print(f"{'run':20} {'per second':>10} {'p50 ms':>8} {'p99 ms':>8} {'server us':>9}  remarks")
for name, r in runs.items():
    if r["mode"] == "soak":
        print(f"{name:20} {'':>10} {'':>8} {'':>8} {'':>9}  {r['short_answers']} answers, "
              f"{r['whole_streams']} streams, {r['left_streams']} left, {r['errors']} errors; "
              f"memory {r['resident_slope_bytes_per_s'] / 1024:+.1f} KiB/s, "
              f"files {r['files_slope_per_s']:+.3f}/s")
        continue
    rate = r.get("requests_per_s", r.get("goodput_per_s", r.get("tokens_per_s")))
    times = r.get("latency_ms", r.get("added_gap_ms")) or {}
    cost = r.get("server_cpu_us_per_request", r.get("server_cpu_us_per_answer", r.get("server_cpu_us_per_token")))
    remarks = ""
    if r["mode"] == "rate":
        remarks = f"of {r['rate']:.0f}; 429: {r['status_429']}, late: {r['accepted_late']}, lost: {r['broken'] + r['unanswered']}, not sent: {r['not_sent']}"
        if r["refusal_ms"]:
            remarks += f", refused in p99 {r['refusal_ms']['p99']:.1f} ms"
    if r["mode"] == "streams":
        first = r["first_token_ms"] or {"p99": float("nan")}
        remarks = f"{r['alive_at_end']} alive, {r['share_of_scripted_rate']:.3f} of the scripted rate, first token p99 {first['p99']:.0f} ms"
    print(f"{name:20} {rate:10.0f} {times.get('p50', float('nan')):8.2f} {times.get('p99', float('nan')):8.2f} {cost:9.1f}  {remarks}")
EOF
echo "== results in $out/serve.json"
