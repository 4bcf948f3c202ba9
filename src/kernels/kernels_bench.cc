// Speed of the ops at the shapes of the bench checkpoint, beside the machine's limits from the same
// run: read bandwidth and float32 multiply-add peak. Counters: bytes/s of packed weights or cached
// rows, FLOP/s with a multiply-add as two. Every op's output is compared with the reference once.
//   kernels_bench --benchmark_filter=MatMul/fp8
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "device/host.h"
#include "kernels/dispatch.h"
#include "kernels/probe.h"

namespace kuruma::kernels {
namespace {

using Floats = std::vector<float>;

ThreadPool& Pool() {
  static ThreadPool pool(device::AvailableProcessors());
  return pool;
}

const OpTable& Ops() { return *RunnableCpuOps().back(); }

Floats Normal(int64_t count, float scale = 1) {
  std::mt19937 rng(static_cast<uint32_t>(count));
  std::normal_distribution<float> normal(0, scale);
  Floats x(count);
  for (float& v : x) v = RoundBf16(normal(rng));
  return x;
}

void Report(benchmark::State& state, double bytes, double operations) {
  using benchmark::Counter;
  const double n = static_cast<double>(state.iterations());
  state.counters["bytes/s"] = Counter(bytes * n, Counter::kIsRate);
  state.counters["FLOP/s"] = Counter(operations * n, Counter::kIsRate);
}

// Relative to the largest expected value.
void CheckClose(const Floats& expected, const Floats& actual, double tolerance) {
  double most = 0, error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    most = std::max<double>(most, std::fabs(expected[i]));
    error = std::max<double>(error, std::fabs(expected[i] - actual[i]));
  }
  KURUMA_CHECK(error <= tolerance * most);
}

void ReadBandwidth(benchmark::State& state) {
  double best = 0;
  for (auto _ : state) best = std::max(best, MeasureReadBandwidth(Pool()));
  state.counters["bytes/s"] = best;
}

void FmaPeak(benchmark::State& state) {
  double best = 0;
  for (auto _ : state) best = std::max(best, MeasureFmaPeak(Pool()));
  state.counters["FLOP/s"] = best;
}

// ------------------------------------------------------------------------------------------ matmul

constexpr int64_t kStreamBytes = int64_t{256} << 20;

// Equal matrices that together exceed the caches by far.
struct Stream {
  std::vector<std::byte> data;
  std::vector<uint8_t> scales;
  std::vector<Matrix> matrices;
};

Stream MakeStream(WeightFormat format, int64_t rows, int64_t cols) {
  Matrix m;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  const int64_t bytes = rows * m.row_bytes();
  const int64_t count = (kStreamBytes + bytes - 1) / bytes;
  Stream stream;
  stream.data.resize(count * bytes);
  uint64_t random = 1;
  for (size_t i = 0; i < stream.data.size(); ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    auto byte = static_cast<uint8_t>(random >> 56);
    if (format == WeightFormat::kFp8) byte = (byte & 0xBF) | 0x20;  // normal codes, as amax gives
    const bool top =
        i % (format == WeightFormat::kF32 ? 4 : 2) == (format == WeightFormat::kF32 ? 3 : 1);
    if (m.format == WeightFormat::kF32 || m.format == WeightFormat::kBf16) {
      if (top) byte = (byte & 0x80) | 0x3C;  // magnitudes near 0.01
    }
    stream.data[i] = static_cast<std::byte>(byte);
  }
  m.block_rows = format == WeightFormat::kFp8 ? 32 : 1;
  m.block_cols = 32;
  m.scale_stride = cols / 32;
  stream.scales.assign(rows * m.scale_stride, 118);
  if (format == WeightFormat::kFp8 || format == WeightFormat::kFp4) m.scales = stream.scales.data();
  for (int64_t i = 0; i < count; ++i) {
    m.data = stream.data.data() + i * bytes;
    stream.matrices.push_back(m);
  }
  return stream;
}

void MatMul(benchmark::State& state, WeightFormat format) {
  const int64_t m = state.range(0), k = 1280, n = 1280;
  const Stream stream = MakeStream(format, n, k);
  Floats x = Normal(m * k), y(m * n), expected(m * n);
  QuantizeDequantizeFp8(x, x.data());
  MatMulTask task;
  task.x = {x.data(), m, k};
  task.y = {y.data(), m, n};
  task.weight = stream.matrices.back();
  Ops().matmul(Pool(), {&task, 1});
  if (m <= 16) {
    task.y.data = expected.data();
    ReferenceOps().matmul(Pool(), {&task, 1});
    CheckClose(expected, y, 1e-5);
    task.y.data = y.data();
  }
  size_t next = 0;
  for (auto _ : state) {
    task.weight = stream.matrices[next];
    next = (next + 1) % stream.matrices.size();
    Ops().matmul(Pool(), {&task, 1});
  }
  Report(state, static_cast<double>(n * task.weight.row_bytes()),
         2.0 * static_cast<double>(m * n * k));
}

// One MoE layer of the bench checkpoint at `tokens` decode rows: w1 and w3 of every chosen expert.
void Experts(benchmark::State& state) {
  const int64_t tokens = state.range(0), k = 1280, n = 576, experts = 64, top_k = 6;
  const Stream stream = MakeStream(WeightFormat::kFp4, n, k);
  std::mt19937 rng(3);
  std::vector<int64_t> rows(experts);
  for (int64_t t = 0; t < tokens * top_k; ++t) ++rows[rng() % experts];
  const Floats x = Normal(tokens * top_k * k);
  Floats y(2 * tokens * top_k * n);
  std::vector<MatMulTask> tasks;
  int64_t at = 0, bytes = 0;
  for (const int64_t count : rows) {
    if (count == 0) continue;
    for (int part = 0; part < 2; ++part) {
      MatMulTask task;
      task.x = {x.data() + at * k, count, k};
      task.y = {y.data() + (2 * at + part * count) * n, count, n};
      tasks.push_back(task);
      bytes += n * k / 2;
    }
    at += count;
  }
  size_t next = 0;
  for (auto _ : state) {
    for (MatMulTask& task : tasks) {
      task.weight = stream.matrices[next];
      next = (next + 1) % stream.matrices.size();
    }
    Ops().matmul(Pool(), tasks);
  }
  Report(state, static_cast<double>(bytes), 4.0 * static_cast<double>(tokens * top_k * n * k));
}

// --------------------------------------------------------------------------------------- attention

std::vector<std::byte> RandomRows(RowFormat format, int64_t count, int64_t dim) {
  const int64_t bytes = RowBytes(format, dim);
  std::vector<std::byte> rows(count * bytes);
  const Floats x = Normal(count * dim);
  for (int64_t r = 0; r < count; ++r) {
    StoreRow(format, Fp4Division::kReciprocal, {x.data() + r * dim, static_cast<size_t>(dim)},
             rows.data() + r * bytes);
  }
  return rows;
}

// 16 heads of 512 over 128 window rows and 512 compressed rows.
void Attention(benchmark::State& state) {
  const int64_t count = state.range(0), heads = 16, dim = 512, window = 128, picks = 512;
  const auto near = RandomRows(RowFormat::kFp8, window, dim);
  const auto far = RandomRows(RowFormat::kFp4E4m3, picks, dim);
  const std::byte* block = far.data();
  std::vector<const std::byte*> rows;
  std::vector<int32_t> chosen;
  for (int64_t j = 0; j < window; ++j) {
    rows.push_back(near.data() + j * RowBytes(RowFormat::kFp8, dim));
  }
  for (int32_t j = 0; j < picks; ++j) chosen.push_back(j);
  const Floats q = Normal(count * heads * dim), sink = Normal(heads);
  Floats out(q.size()), expected(q.size());
  const AttentionSpec spec{heads,
                           dim,
                           sink.data(),
                           RowFormat::kFp8,
                           {picks, 0, RowBytes(RowFormat::kFp4E4m3, dim), RowFormat::kFp4E4m3},
                           true};
  std::vector<AttentionQuery> queries, once;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * heads * dim;
    queries.push_back({q.data() + at, out.data() + at, rows, chosen, &block});
  }
  once.push_back({q.data(), expected.data(), rows, chosen, &block});
  ReferenceOps().attention(Pool(), spec, once);
  Ops().attention(Pool(), spec, queries);
  expected.resize(heads * dim);
  CheckClose(expected, Floats(out.begin(), out.begin() + heads * dim), 1e-2);
  for (auto _ : state) Ops().attention(Pool(), spec, queries);
  const double attended = static_cast<double>(count * (window + picks));
  Report(state, attended * 288, 4.0 * attended * heads * dim);
}

// 8 heads of 128 over all entries.
void IndexScores(benchmark::State& state) {
  const int64_t count = state.range(0), visible = state.range(1), heads = 8, dim = 128;
  const auto keys = RandomRows(RowFormat::kFp4E8m0, visible, dim);
  const std::byte* block = keys.data();
  const Floats q = Normal(count * heads * dim), weights = Normal(count * heads);
  Floats out(count * visible), expected(visible);
  const IndexSpec spec{heads,
                       dim,
                       {visible, 0, RowBytes(RowFormat::kFp4E8m0, dim), RowFormat::kFp4E8m0},
                       true,
                       true};
  std::vector<IndexQuery> queries, once;
  for (int64_t i = 0; i < count; ++i) {
    queries.push_back({q.data() + i * heads * dim, weights.data() + i * heads,
                       out.data() + i * visible, visible, &block});
  }
  once = {queries[0]};
  once[0].scores = expected.data();
  ReferenceOps().index_scores(Pool(), spec, once);
  Ops().index_scores(Pool(), spec, queries);
  CheckClose(expected, Floats(out.begin(), out.begin() + visible), 1e-2);
  for (auto _ : state) Ops().index_scores(Pool(), spec, queries);
  const double pairs = static_cast<double>(count * visible);
  Report(state, pairs * 68, 2.0 * pairs * heads * dim);
}

// -------------------------------------------------------------------------------------- row by row

void QuantizeFp8(benchmark::State& state) {
  const int64_t n = state.range(0), d = 1280;
  const Floats x = Normal(n * d);
  Floats y(x.size()), expected(x.size());
  QuantizeDequantizeFp8(x, expected.data());
  for (auto _ : state) Ops().quantize_fp8(Pool(), {x.data(), n, d}, {y.data(), n, d});
  CheckClose(expected, y, 0);
  Report(state, static_cast<double>(n * d * 8), 0);
}

void HcMixBench(benchmark::State& state) {
  const int64_t n = state.range(0), d = 1280, k = 4 * d;
  const Floats fn = Normal(24 * k, 0.02f), x = Normal(n * k), base = Normal(24), scale = {1, 1, 1};
  Floats pre(n * 4), post(n * 4), comb(n * 16);
  HcSite site;
  site.fn.data = reinterpret_cast<const std::byte*>(fn.data());
  site.fn.rows = 24;
  site.fn.cols = k;
  site.scale = scale.data();
  site.base = base.data();
  const HcMix out{{pre.data(), n, 4}, {post.data(), n, 4}, {comb.data(), n, 16}};
  ReferenceOps().hc_mix(Pool(), site, {x.data(), n, k}, out);
  const Floats expected = comb;
  for (auto _ : state) Ops().hc_mix(Pool(), site, {x.data(), n, k}, out);
  CheckClose(expected, comb, 1e-5);
  Report(state, static_cast<double>(24 * k * 4), 2.0 * 24 * static_cast<double>(k * n));
}

void HcExpandBench(benchmark::State& state) {
  const int64_t n = state.range(0), d = 1280;
  const Floats y = Normal(n * d);
  Floats streams(n * 4 * d), post(n * 4, 0.1f), comb(n * 16, 0.25f);
  const HcMix mix{{}, {post.data(), n, 4}, {comb.data(), n, 16}};
  for (auto _ : state)
    Ops().hc_expand(Pool(), {y.data(), n, d}, mix, true, {streams.data(), n, 4 * d});
  Report(state, static_cast<double>(n * d * 36), 0);
}

void SwigluBench(benchmark::State& state) {
  const int64_t n = state.range(0), d = 576;
  const Floats gate = Normal(n * d), up = Normal(n * d);
  Floats y(n * d);
  for (auto _ : state) {
    Ops().swiglu(Pool(), {}, {gate.data(), n, d}, {up.data(), n, d}, {y.data(), n, d});
  }
  Report(state, static_cast<double>(n * d * 12), 0);
}

void RouteBench(benchmark::State& state) {
  const int64_t n = state.range(0), d = 1280, experts = 64;
  std::vector<uint16_t> gate(experts * d);
  const Floats w = Normal(experts * d, 0.05f), u = Normal(n * d), bias = Normal(experts);
  std::transform(w.begin(), w.end(), gate.begin(), FloatToBf16);
  RouterSpec spec;
  spec.gate.format = WeightFormat::kBf16;
  spec.gate.data = reinterpret_cast<const std::byte*>(gate.data());
  spec.gate.rows = experts;
  spec.gate.cols = d;
  spec.bias = bias.data();
  spec.top_k = 6;
  std::vector<int32_t> ids(n * 6);
  Floats weights(n * 6);
  const RouterResult out{{ids.data(), n, 6}, {weights.data(), n, 6}, {}};
  for (auto _ : state) Ops().route(Pool(), spec, {u.data(), n, d}, out);
  Report(state, static_cast<double>(experts * d * 2), 2.0 * static_cast<double>(n * d * experts));
}

BENCHMARK(ReadBandwidth)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(FmaPeak)->Iterations(1)->Unit(benchmark::kMillisecond);
#define KURUMA_MATMUL(name, format)       \
  BENCHMARK_CAPTURE(MatMul, name, format) \
      ->Arg(1)                            \
      ->Arg(2)                            \
      ->Arg(4)                            \
      ->Arg(6)                            \
      ->Arg(8)                            \
      ->Arg(16)                           \
      ->Arg(64)                           \
      ->Arg(512)                          \
      ->UseRealTime()
KURUMA_MATMUL(fp8, WeightFormat::kFp8);
KURUMA_MATMUL(fp4, WeightFormat::kFp4);
KURUMA_MATMUL(bf16, WeightFormat::kBf16);
KURUMA_MATMUL(f32, WeightFormat::kF32);
BENCHMARK(Experts)->Arg(1)->Arg(4)->Arg(8)->Arg(64)->Arg(512)->UseRealTime();
BENCHMARK(Attention)->Arg(1)->Arg(8)->Arg(32)->UseRealTime();
BENCHMARK(IndexScores)->Args({1, 4096})->Args({8, 4096})->Args({64, 4096})->UseRealTime();
BENCHMARK(QuantizeFp8)->Arg(1)->Arg(512)->UseRealTime();
BENCHMARK(HcMixBench)->Name("HcMix")->Arg(1)->Arg(8)->Arg(512)->UseRealTime();
BENCHMARK(HcExpandBench)->Name("HcExpand")->Arg(1)->Arg(512)->UseRealTime();
BENCHMARK(SwigluBench)->Name("Swiglu")->Arg(6)->Arg(512)->UseRealTime();
BENCHMARK(RouteBench)->Name("Route")->Arg(1)->Arg(512)->UseRealTime();

}  // namespace
}  // namespace kuruma::kernels
