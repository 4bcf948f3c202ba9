#!/usr/bin/env bash
# Measures Kuruma on this machine and keeps the proof in bench/results/MACHINE/:
#   model.json       kuruma bench on the 1.3 GB random checkpoint (load, prefill, decode, shares of the machine)
#   kernels.csv      kernels_bench: products per format and rows, attention, index scores, machine limits
#   tokenizer.csv    tokenizer_bench: MB/s per kind of text
#   about.txt        commit, processor, commands
# Usage: bench/measure.sh [MACHINE]      (default: processor and count, e.g. amd-epyc-2)
# Absolute times differ from run to run on shared machines: compare figures of one run only.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
machine=${1:-$(tr -cs 'A-Za-z0-9\n' '-' <<<"${cpu,,}" | sed 's/^-//; s/-$//')-$(nproc)}
out=bench/results/$machine
model=build/data/bench-model
mkdir -p "$out"

make --no-print-directory build data >/dev/null
if [[ ! -f $model/config.json ]]; then
  rm -rf "$model"
  tools/make_bench_checkpoint "$model" --preset bench >/dev/null
fi
cat "$model"/*.safetensors >/dev/null # warm page cache

# Google Benchmark's JSON on stdin to CSV: what was measured, nothing about the host.
to_csv() {
  python3 -c '
import json, sys
keys = ["name", "real_time", "time_unit", "bytes_per_second", "FLOP/s"]
print(",".join(keys))
for b in json.load(sys.stdin)["benchmarks"]:
    b = {k.replace("bytes/s", "bytes_per_second"): v for k, v in b.items()}
    print(",".join(f"{v:.5g}" if isinstance(v, float) else str(v) for v in (b.get(k, "") for k in keys)))
'
}

commands=(
  "build/release/kuruma bench --model $model --prefill 512,4096 --batch 1,4,8 --context 512 --steps 32 --repeat 3 --json"
  "build/release/kernels_bench --benchmark_format=json"
  "build/release/tokenizer_bench --benchmark_format=json"
)
files=(model.json kernels.csv tokenizer.csv)
filters=(cat to_csv to_csv)
{
  echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ' with changes')"
  echo "processor $cpu, $(nproc) usable, $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
  echo "load average before: $(cut -d' ' -f1-3 /proc/loadavg)"
} >"$out/about.txt"
for i in "${!commands[@]}"; do
  echo "== ${commands[$i]}"
  ${commands[$i]} 2>/dev/null | "${filters[$i]}" >"$out/${files[$i]}"
  echo "${files[$i]}: ${commands[$i]}" >>"$out/about.txt"
done
echo "== results in $out"
