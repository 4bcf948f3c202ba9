// Every operation of the forward pass, as one table per implementation.
//
// Activations are float32 matrices whose entries may hold values of a narrower type: where a
// function takes `round_bf16`, results are rounded to bfloat16 values (release, vendor numerics) or
// left as float32 (exact numerics). Weights stay packed as on disk.
//
// Contract of every implementation (DESIGN.md "Numeric conventions"):
//  * a row's bits depend on that row's inputs alone, never on the number of rows, on the other
//  rows,
//    or on the thread count;
//  * `kernels/reference` sums in float64 and rounds once: it defines the result;
//  * outputs may not alias inputs unless said;
//  * one op at a time per ThreadPool; inputs are validated by the caller (the model), ops only
//  check
//    what would read out of bounds.
// Sources: specification of the V4.1 text path, sections named at each op in DESIGN.md.
#ifndef KURUMA_KERNELS_OPS_H_
#define KURUMA_KERNELS_OPS_H_

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "base/view.h"
#include "kernels/formats.h"

namespace kuruma::kernels {

// y [m, n] = x [m, k] times W [n, k] transposed. Quantised weights expect inputs that already went
// through QuantizeDequantizeFp8 where the numerics ask for it.
struct MatMulTask {
  Matrix weight;
  ConstRows x;
  Rows y;
  bool round_bf16 = false;
};

struct NormSpec {
  double eps = 1e-20;
  bool round_bf16 = false;
};

// Rotation of adjacent pairs of the last 2 * cos.cols entries of each head.
struct RopeSpec {
  int64_t heads = 1;  // a row is heads x head_dim
  int64_t head_dim = 0;
  ConstRows cos;  // [rows, pairs], one row per row of x
  ConstRows sin;
  bool inverse = false;  // rotate by the negative angle
  bool round_bf16 = false;
};

// One hyper-connection site: logits = (fn . streams) * rsqrt(mean(streams^2) + norm_eps), then the
// Sinkhorn split. fn [streams * (2 + streams), streams * d], base likewise, scale [3].
struct HcSite {
  Matrix fn;
  const float* scale = nullptr;
  const float* base = nullptr;
  int streams = 4;
  int iterations = 20;
  double norm_eps = 1e-20;
  double eps = 1e-6;
};

// Outputs of a site per row: pre [n, streams], post [n, streams], comb [n, streams * streams]
// (row major, first index = source stream).
struct HcMix {
  Rows pre;
  Rows post;
  Rows comb;
};

struct RouterSpec {
  Matrix gate;                  // [experts, d], BF16
  const float* bias = nullptr;  // [experts]; selects, never weighs
  int top_k = 0;
  float scale = 1;  // routed_scaling_factor
};

// Per row: ids [n, top_k] in order of falling score (ties: lower id first), weights likewise,
// scores [n, experts] with the bias added (for margins; cols may be 0 when not wanted).
struct RouterResult {
  MatrixView<int32_t> ids;
  Rows weights;
  Rows biased_scores;
};

struct SwigluSpec {
  float limit = 10;                // gate clamped from above, up on both sides
  const float* weights = nullptr;  // one factor per row, or null
  bool round_bf16 = false;
};

// Which rows of `parts` make up each output row, in order; then its row of `shared`.
struct ExpertSum {
  MatrixView<const int32_t> index;  // [n, k] rows of parts
  ConstRows shared;                 // [n, d]
  bool round_bf16 = false;
};

struct AttentionSpec {
  int64_t heads = 0;
  int64_t head_dim = 0;
  const float* sink = nullptr;  // [heads]; enlarges the denominator only
  RowFormat window_format = RowFormat::kF32;
  PagedRows compressed;     // used when a query has picks
  bool round_bf16 = false;  // rounds probabilities before the values and the result
};

// One query token. Rows attended: window rows in the order given, then compressed rows `picks`.
// No rows at all: the result is zero.
struct AttentionQuery {
  const float* q = nullptr;  // [heads, head_dim]
  float* out = nullptr;      // [heads, head_dim]
  std::span<const std::byte* const> window;
  std::span<const int32_t> picks;
  const std::byte* const* blocks = nullptr;  // block table of this query's sequence
};

struct IndexSpec {
  int64_t heads = 0;
  int64_t dim = 0;
  PagedRows keys;
  // true: head products and their sum stay float32, one rounding at the end (released engine);
  // false: bfloat16 per head (single-file reference).
  bool single_round = true;
  bool round_bf16 = false;
};

// scores[j] = sum_h relu(q_h . key_j) * weights[h] for j < visible.
struct IndexQuery {
  const float* q = nullptr;        // [heads, dim], already quantised and dequantised
  const float* weights = nullptr;  // [heads]
  float* scores = nullptr;         // [visible]
  int64_t visible = 0;
  const std::byte* const* blocks = nullptr;
};

struct EngramSpec {
  const float* weight = nullptr;  // [streams, d], the product q_weight * k_weight
  int streams = 4;
  double eps = 1e-20;
  bool round_bf16 = false;
};

// The operations. All pointers are set in every table.
struct OpTable {
  const char* name;

  void (*matmul)(ThreadPool& pool, std::span<const MatMulTask> tasks);

  // y = weight * x * rsqrt(mean(x^2) + eps); weight [cols] BF16. y may be x.
  void (*rms_norm)(ThreadPool& pool, ConstRows x, const uint16_t* weight, NormSpec spec, Rows y);

  // QuantizeDequantizeFp8 on every row. y may be x.
  void (*quantize_fp8)(ThreadPool& pool, ConstRows x, Rows y);

  // Rotates in place.
  void (*rope)(ThreadPool& pool, const RopeSpec& spec, Rows x);

  // Coefficients of a site from streams [n, streams * d].
  void (*hc_mix)(ThreadPool& pool, const HcSite& site, ConstRows streams, HcMix out);

  // u [n, d] = sum_i pre[i] * streams[i].
  void (*hc_collapse)(ThreadPool& pool, ConstRows streams, ConstRows pre, bool round_bf16, Rows u);

  // streams[k] = post[k] * y + sum_j comb[j][k] * streams[j], in place. mix.pre is not read.
  void (*hc_expand)(ThreadPool& pool, ConstRows y, const HcMix& mix, bool round_bf16, Rows streams);

  // sqrt(softplus) scores of u [n, d], top-k, normalised weights.
  void (*route)(ThreadPool& pool, const RouterSpec& spec, ConstRows u, const RouterResult& out);

  // y = silu(min(gate, limit)) * clamp(up, +-limit) * weight. y may be gate or up.
  void (*swiglu)(ThreadPool& pool, const SwigluSpec& spec, ConstRows gate, ConstRows up, Rows y);

  // y[r] = sum over parts[index[r][i]], i ascending, plus shared[r]; one rounding at the end.
  void (*sum_experts)(ThreadPool& pool, const ExpertSum& spec, ConstRows parts, Rows y);

  void (*attention)(ThreadPool& pool, const AttentionSpec& spec,
                    std::span<const AttentionQuery> queries);

  void (*index_scores)(ThreadPool& pool, const IndexSpec& spec,
                       std::span<const IndexQuery> queries);

  // Pools groups of `ratio` consecutive rows: per channel softmax over the group's gates weighs kv.
  // kv, gate [groups * ratio, d]; y [groups, d].
  void (*compress)(ThreadPool& pool, ConstRows kv, ConstRows gate, bool round_bf16, Rows y);

  // streams[i] += gate_i * value, kv [n, (streams + 1) * d] = keys then value; gates [n, streams]
  // is an output too.
  void (*engram)(ThreadPool& pool, const EngramSpec& spec, ConstRows kv, Rows streams, Rows gates);
};

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_OPS_H_
