#!/usr/bin/env python3
"""Plants the structural mistakes that implementations of this model are known to make, one at a
time, in a scratch copy of the sources, and reports which tests notice.

    tools/plant_mistakes.py [--only SUBSTRING] [--keep DIR]

Builds kernels_test and model_golden_test once, then rebuilds per mistake (about 20 s each). Tests
run with the reference kernels on the golden checkpoints. Exit status 1 if a mistake goes unnoticed
or no longer applies to the sources.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORWARD = "src/model/forward/"
REFERENCE = "src/kernels/reference/"

# (name, [(file, text, replacement), ...])
MISTAKES = [
    ("comb transposed", [(REFERENCE + "hyper.cc", "comb[j * n + k] * old[j]", "comb[k * n + j] * old[j]")]),
    ("no inverse rotation of the attention output",
     [(FORWARD + "attention.cc", "  ctx.Rotate(batch, in.kind, heads, /*inverse=*/true, o);\n", "")]),
    ("inverse rotation at the wrong sign",
     [(FORWARD + "attention.cc", "heads, /*inverse=*/true, o)", "heads, /*inverse=*/false, o)")]),
    ("split-half rotation pairs",
     [(REFERENCE + "rows.cc", "tail[2 * i], odd = tail[2 * i + 1]", "tail[i], odd = tail[i + pairs]"),
      (REFERENCE + "rows.cc", "tail[2 * i] = ", "tail[i] = "),
      (REFERENCE + "rows.cc", "tail[2 * i + 1] = ", "tail[i + pairs] = ")]),
    ("no YaRN", [("src/model/model.cc", "c.has_rope_scaling ? &c.rope_scaling : nullptr", "nullptr")]),
    ("one theta for all layers",
     [("src/model/model.cc", "RopeFrequencies(c.rope_dim, c.compress_rope_theta,", "RopeFrequencies(c.rope_dim, c.rope_theta,")]),
    ("window branch of compressed layers with the plain theta",
     [(FORWARD + "pass.cc", "MakeWindowRows(ctx_, w.attn, kind, *batch, u)",
       "MakeWindowRows(ctx_, w.attn, RopeKind::kWindow, *batch, u)")]),
    ("sink ignored",
     [(REFERENCE + "sparse.cc", "  denominator += std::exp(static_cast<double>(sink) - peak);\n",
       "  (void)sink;\n")]),
    ("window one short",
     [(FORWARD + "pass.cc", "std::max(position - ctx_.config.window + 1,", "std::max(position - ctx_.config.window + 2,")]),
    ("newest compressed entry invisible",
     [(FORWARD + "compressed.cc", "(batch->positions[r] + 1) / source.ratio", "batch->positions[r] / source.ratio")]),
    ("index top-k one short",
     [(FORWARD + "compressed.cc", "kernels::SelectTopK(scores, c.index_topk)",
       "kernels::SelectTopK(scores, c.index_topk - 1)")]),
    ("candidate pool ignored",
     [(FORWARD + "compressed.cc", "c.candidate_source >= 0 && layer > c.candidate_source", "false")]),
    ("newest block not pinned",
     [("src/kernels/select.cc",
       "  if (blocks > 0) best[blocks - 1] = std::numeric_limits<float>::infinity();\n", "")]),
    ("bias inside the routing weights",
     [(REFERENCE + "sparse.cc", "sum += scores[order[i]]", "sum += biased[order[i]]"),
      (REFERENCE + "sparse.cc", "= scores[order[i]] / (sum", "= biased[order[i]] / (sum")]),
    ("routed scaling missing", [(REFERENCE + "sparse.cc", " * spec.scale;", ";")]),
    ("SwiGLU clamp missing",
     [(REFERENCE + "rows.cc", "std::min(gate.row(r)[c], spec.limit)", "gate.row(r)[c]"),
      (REFERENCE + "rows.cc", "std::clamp(up.row(r)[c], -spec.limit, spec.limit)", "up.row(r)[c]")]),
    ("routing weight after the down projection instead of before",
     [(REFERENCE + "rows.cc", "if (spec.weights != nullptr) act *= spec.weights[r];",
       "if (spec.weights != nullptr) act *= 1;")]),
    ("wrong Engram pad", [("src/model/model.cc", "classes[e.pad_token]", "classes[0]")]),
    ("Engram offsets missing", [("src/model/engram_hash.cc", " % primes[k] + offsets[k]", " % primes[k]")]),
    ("Engram history shifted",
     [(FORWARD + "feed_forward.cc", "int64_t p = s.first_position + i;", "int64_t p = s.first_position + i - 1;")]),
    ("collapse with the mean",
     [(REFERENCE + "hyper.cc", "static_cast<double>(pre.row(r)[i]) * streams", "1.0 / pre.cols * streams")]),
    ("FFN collapse with its own coefficients",
     [(FORWARD + "layers.cc", "ctx.CollapseAndNorm(streams, attention_pre, w.ffn_norm)",
       "ctx.CollapseAndNorm(streams, mix.pre, w.ffn_norm)"),
      (FORWARD + "layers.cc", "ConstRows attention_pre, Batch* batch) {", "ConstRows, Batch* batch) {")]),
    ("one Sinkhorn iteration", [(FORWARD + "layers.cc", "ctx.config.sinkhorn_iterations", "1")]),
    ("norm epsilon 1e-6", [("src/model/config.cc", '&c->norm_eps);', '&c->norm_eps);\n  c->norm_eps = 1e-6;')]),
    ("per-head query norm left over from V4",
     [(FORWARD + "attention.cc", "  ctx.Rotate(batch, kind, ctx.config.heads, /*inverse=*/false, out.q);\n",
       "  const std::vector<uint16_t> ones(ctx.config.head_dim, 0x3F80);\n"
       "  ctx.Norm({out.q.data, batch.rows() * ctx.config.heads, ctx.config.head_dim}, ones.data());\n"
       "  ctx.Rotate(batch, kind, ctx.config.heads, /*inverse=*/false, out.q);\n")]),
    ("index keys from the rotated latent",
     [(FORWARD + "compressed.cc",
       "  ctx.MatMul({ctx.Linear(latent, w.index_wk, keys)});\n",
       "  Batch at;\n"
       "  for (const Entry& e : entries) at.positions.push_back(e.number * source.ratio);\n"
       "  FillAngles(ctx, &at);\n"
       "  Rows turned = ctx.workspace.Take(count, ctx.config.head_dim);\n"
       "  std::copy_n(latent.data, count * ctx.config.head_dim, turned.data);\n"
       "  ctx.Rotate(at, RopeKind::kCompressed, 1, false, turned);\n"
       "  ctx.MatMul({ctx.Linear(turned, w.index_wk, keys)});\n")]),
    ("entries at the position of their last token",
     [(FORWARD + "compressed.cc", "at.positions.push_back(entry.number * ratio);",
       "at.positions.push_back(entry.number * ratio + ratio - 1);")]),
    ("compressor groups by chunk instead of absolute position",
     [(FORWARD + "compressed.cc", "for (int64_t j = s.first_position / ratio; j < end; ++j)",
       "for (int64_t j = (s.first_position + ratio - 1) / ratio; j < end; ++j)")]),
    ("FP4 nibbles swapped",
     [("src/kernels/formats.cc", "(bytes[c / 2] >> (c % 2 * 4)) & 15", "(bytes[c / 2] >> (4 - c % 2 * 4)) & 15")]),
    ("FP8 scale of the wrong tile row",
     [("src/kernels/formats.h", "(first_row + r) / block_rows * scale_stride", "r / (4 * block_rows) * scale_stride")]),
    ("draft sees only earlier drafts",
     [(FORWARD + "draft.cc",
       "    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) lists[r] = rows;\n",
       "    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) {\n"
       "      lists[r] = rows;\n"
       "      lists[r].resize(rows.size() - (s.begin + s.rows - 1 - r));\n"
       "    }\n")]),
    ("confidence from the normed hidden state",
     [(FORWARD + "draft.cc", "  ChooseTokens(ctx, inputs, choose, features, result);\n",
       "  ChooseTokens(ctx, inputs, choose, features, result);\n"
       "  for (int64_t r = 0; r < h.rows; ++r) std::copy_n(h.row(r), hidden, x.row(r));\n")]),
    ("draft targets after instead of before their layers",
     [(FORWARD + "pass.cc", "    KeepForDraft(layer, &batch);\n    std::vector<int64_t> keep_from;",
       "    std::vector<int64_t> keep_from;"),
      (FORWARD + "pass.cc", "    Layer(layer, /*compress=*/false, &keep_from, &batch);\n",
       "    Layer(layer, /*compress=*/false, &keep_from, &batch);\n    KeepForDraft(layer, &batch);\n")]),
]

FILTERS = {
    "kernels_test": "GoldenKernels.*:Every/GoldenOps.*/reference",
    "model_golden_test": "Tiny/GoldenModel.Exact*/nano:Tiny/GoldenModel.Exact*/edge:"
                         "Tiny/GoldenModel.Greedy*/nano:Tiny/GoldenModel.Greedy*/edge:"
                         "Tiny/GoldenModel.ReleaseLayers*",
}


def run(command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)


def copy_sources(target):
    for name in ("src", "cmake", "tests", "tools", "apps", "bench", "CMakeLists.txt", "CMakePresets.json"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name)
        else:
            shutil.copy(source, target / name)


def build(build_dir):
    return run(["cmake", "--build", str(build_dir), "--target", *FILTERS])


def failing_tests(build_dir):
    """Names of failing tests; a crashed program counts as one."""
    failed = []
    for program, test_filter in FILTERS.items():
        result = run([str(build_dir / program), f"--gtest_filter={test_filter}"],
                     env={**os.environ, "KURUMA_TEST_KERNELS": "reference"})
        names = re.findall(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)", result.stdout, re.M)
        if result.returncode != 0:
            failed += names or [program + " (crashed)"]
    return failed


def apply(tree, edits):
    """Applies the edits; returns the original texts, or None when one no longer fits."""
    originals = {}
    for name, text, replacement in edits:
        path = tree / name
        source = path.read_text()
        originals.setdefault(path, source)
        if source.count(text) == 0:
            print(f"  {name} has no text {text!r}")
            for changed, original in originals.items():
                changed.write_text(original)
            return None
        path.write_text(source.replace(text, replacement))
    return originals


def judge(tree, build_dir, name, edits):
    """One report line; True when the mistake is noticed."""
    originals = apply(tree, edits)
    if originals is None:
        print(f"STALE     {name}", flush=True)
        return False
    built = build(build_dir)
    if built.returncode != 0:
        print(built.stdout[-3000:])
        print(f"NO BUILD  {name}", flush=True)
    failed = failing_tests(build_dir) if built.returncode == 0 else []
    for path, original in originals.items():
        path.write_text(original)
    if failed:
        print(f"caught    {name}: {len(failed)} tests, e.g. {', '.join(failed[:3])}", flush=True)
    elif built.returncode == 0:
        print(f"UNNOTICED {name}", flush=True)
    return bool(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default="", help="mistakes whose name contains this")
    parser.add_argument("--keep", help="scratch directory to use and leave behind")
    args = parser.parse_args()
    tree = Path(args.keep or tempfile.mkdtemp(prefix="kuruma_mistakes_"))
    tree.mkdir(parents=True, exist_ok=True)
    build_dir = tree / "build" / "release"
    try:
        if not (tree / "src").exists():
            copy_sources(tree)
        configured = run(["cmake", "--preset", "release"], cwd=tree)
        built = build(build_dir)
        if configured.returncode or built.returncode:
            sys.exit(configured.stdout + built.stdout)
        if failing_tests(build_dir):
            sys.exit("the tests fail before anything is planted")
        chosen = [m for m in MISTAKES if args.only in m[0]]
        noticed = sum(judge(tree, build_dir, *mistake) for mistake in chosen)
        print(f"{noticed} of {len(chosen)} mistakes were noticed")
        return 0 if noticed == len(chosen) else 1
    finally:
        if not args.keep:
            shutil.rmtree(tree)


if __name__ == "__main__":
    sys.exit(main())
