#!/usr/bin/env bash
# Measures Kuruma on this machine and keeps the proof in bench/results/MACHINE/:
#   model.json       kuruma bench on the 1.3 GB random checkpoint (load, prefill, decode, shares of the machine)
#   kernels.csv      kernels_bench: products per format and rows, attention, index scores, machine limits
#   tokenizer.csv    tokenizer_bench: MB/s per kind of text
#   engine.json      kuruma bench engine: 1, 4, 16 and 64 requests at once (engine.svg: the curve)
#   engine_sync.json          the same with 16, steps planned one after the other
#   engine_prefix.json        16 prompts that share their first 2048 tokens
#   engine_no_prefix.json     the same without the prefix cache
#   engine.csv, scheduler.csv engine_bench, scheduler_bench: cost of a step beside the model
#   about.txt        commit, processor, commands
# Usage: [ONLY=engine] bench/measure.sh [MACHINE]      (default: processor and count, e.g. amd-epyc-2)
# Absolute times differ from run to run on shared machines: compare figures of one run only.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/machine.sh
model=build/data/bench-model

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
rows = json.load(sys.stdin)["benchmarks"]
keys += sorted({k for b in rows for k in b if k.endswith(("per_step", "_us"))})
print(",".join(keys))
for b in rows:
    b = {k.replace("bytes/s", "bytes_per_second"): v for k, v in b.items()}
    print(",".join(f"{v:.5g}" if isinstance(v, float) else str(v) for v in (b.get(k, "") for k in keys)))
'
}

mix="--max-sequences 64 --num-prompts 64 --input-len 64 --output-len 32"
prefix="--concurrency 16 --num-prompts 16 --prefix-len 2048 --input-len 64 --output-len 8 --warmup 0"
about=$out/about${ONLY:+_$ONLY}.txt
only=${ONLY:-.}  # results whose name matches this pattern; all
commands=(
  "build/release/kuruma bench --model $model --prefill 512,4096 --batch 1,4,8 --context 512 --steps 32 --repeat 3 --json"
  "build/release/kernels_bench --benchmark_format=json"
  "build/release/tokenizer_bench --benchmark_format=json"
  "build/release/kuruma bench engine --model $model $mix --concurrency 1,4,16,64 --plot $out/engine.svg --json"
  "build/release/kuruma bench engine --model $model $mix --concurrency 16 --sync --json"
  "build/release/kuruma bench engine --model $model $prefix --json"
  "build/release/kuruma bench engine --model $model $prefix --no-prefix-cache --json"
  "build/release/engine_bench --benchmark_format=json"
  "build/release/scheduler_bench --benchmark_format=json"
)
files=(model.json kernels.csv tokenizer.csv engine.json engine_sync.json engine_prefix.json engine_no_prefix.json
  engine.csv scheduler.csv)
filters=(cat to_csv to_csv cat cat cat cat to_csv to_csv)
{
  echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ' with changes')"
  echo "processor $cpu, $(nproc) usable, $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
  echo "load average before: $(cut -d' ' -f1-3 /proc/loadavg)"
} >"$about"
for i in "${!commands[@]}"; do
  [[ ${files[$i]} =~ $only ]] || continue
  echo "== ${commands[$i]}"
  ${commands[$i]} 2>/dev/null | "${filters[$i]}" >"$out/${files[$i]}"
  echo "${files[$i]}: ${commands[$i]}" >>"$about"
done
echo "== results in $out"
