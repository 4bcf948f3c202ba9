// Mixture of experts, and the Engram look-up that precedes some layers.
#include <algorithm>
#include <numeric>

#include "model/forward/context.h"

namespace kuruma::model {
namespace {

// Which rows of the gathered activations belong to which expert.
struct Assignment {
  std::vector<int32_t> token;    // [n * k] token of each gathered row, experts ascending
  std::vector<float> weight;     // [n * k]
  std::vector<int64_t> first;    // [experts + 1] gathered rows of each expert
  std::vector<int32_t> rows_of;  // [n, k] gathered rows of each token, experts ascending
};

Assignment GroupByExpert(const kernels::RouterResult& routed, int64_t experts) {
  const int64_t n = routed.ids.rows, k = routed.ids.cols;
  Assignment a{.token = std::vector<int32_t>(n * k),
               .weight = std::vector<float>(n * k),
               .first = std::vector<int64_t>(experts + 1),
               .rows_of = std::vector<int32_t>(n * k)};
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t i = 0; i < k; ++i) ++a.first[routed.ids.row(r)[i] + 1];
  }
  std::partial_sum(a.first.begin(), a.first.end(), a.first.begin());
  std::vector<int64_t> next(a.first.begin(), a.first.end() - 1);
  for (int64_t r = 0; r < n; ++r) {
    int32_t* rows = a.rows_of.data() + r * k;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t row = next[routed.ids.row(r)[i]]++;
      a.token[row] = static_cast<int32_t>(r);
      a.weight[row] = routed.weights.row(r)[i];
      rows[i] = static_cast<int32_t>(row);
    }
    std::sort(rows, rows + k);  // gathered rows ascend with the expert id
  }
  return a;
}

// Products of every expert that has rows, and of the shared expert, as one parallel region.
// Gathered rows come first, then one row per token for the shared expert.
class ExpertProducts {
 public:
  ExpertProducts(const Context& ctx, const MoeWeights& w, const Assignment& a, int64_t tokens)
      : ctx_(ctx), w_(w), a_(a), tokens_(tokens) {}

  // y rows = x rows times matrix `member` of the expert they belong to.
  void Add(Matrix ExpertWeights::*member, ConstRows x, Rows y) {
    for (size_t e = 0; e + 1 < a_.first.size(); ++e) {
      const int64_t begin = a_.first[e], rows = a_.first[e + 1] - begin;
      if (rows == 0) continue;
      tasks_.push_back(
          ctx_.Linear(x.Slice(begin, rows), w_.experts[e].*member, y.Slice(begin, rows)));
    }
    const int64_t gathered = a_.first.back();
    tasks_.push_back(
        ctx_.Linear(x.Slice(gathered, tokens_), w_.shared.*member, y.Slice(gathered, tokens_)));
  }

  void Run() { ctx_.ops.matmul(ctx_.pool, tasks_); }

 private:
  const Context& ctx_;
  const MoeWeights& w_;
  const Assignment& a_;
  int64_t tokens_;
  std::vector<kernels::MatMulTask> tasks_;
};

kernels::RouterResult Route(const Context& ctx, const MoeWeights& w, ConstRows u,
                            std::vector<int32_t>* ids) {
  ids->resize(u.rows * w.top_k);
  kernels::RouterResult routed{.ids = {ids->data(), u.rows, w.top_k},
                               .weights = ctx.workspace.Take(u.rows, w.top_k),
                               .biased_scores = {}};
  if (ctx.trace.on()) routed.biased_scores = ctx.workspace.Take(u.rows, w.gate.rows);
  ctx.ops.route(
      ctx.pool,
      {.gate = w.gate, .bias = w.bias, .top_k = w.top_k, .scale = ctx.config.routed_scale}, u,
      routed);
  return routed;
}

}  // namespace

void MixtureOfExperts(const Context& ctx, const MoeWeights& w, int layer, ConstRows u, Rows y) {
  const Workspace::Scope scope(ctx.workspace);
  const int64_t n = u.rows, inner = ctx.config.expert_inner, hidden = ctx.config.hidden;
  std::vector<int32_t> ids;
  const kernels::RouterResult routed = Route(ctx, w, u, &ids);
  Assignment a = GroupByExpert(routed, w.gate.rows);
  const int64_t gathered = n * w.top_k;
  const ConstRows quantized = ctx.Quantized(u);
  Rows x = ctx.workspace.Take(gathered + n, hidden);
  ctx.pool.ParallelFor(gathered + n, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::copy_n(quantized.row(r < gathered ? a.token[r] : r - gathered), hidden, x.row(r));
    }
  });
  Rows gate = ctx.workspace.Take(gathered + n, inner), up = ctx.workspace.Take(gathered + n, inner);
  ExpertProducts up_products(ctx, w, a, n);
  up_products.Add(&ExpertWeights::w1, x, gate);
  up_products.Add(&ExpertWeights::w3, x, up);
  up_products.Run();
  a.weight.resize(gathered + n, 1.0f);  // the shared expert has no factor
  ctx.ops.swiglu(ctx.pool,
                 {.limit = ctx.config.swiglu_limit,
                  .weights = a.weight.data(),
                  .round_bf16 = ctx.numerics.bf16 && !ctx.numerics.fused_swiglu},
                 gate, up, gate);
  Rows parts = ctx.workspace.Take(gathered + n, hidden);
  ExpertProducts down_products(ctx, w, a, n);
  down_products.Add(&ExpertWeights::w2, ctx.Quantized(gate), parts);
  down_products.Run();
  ctx.ops.sum_experts(ctx.pool,
                      {.index = {a.rows_of.data(), n, w.top_k},
                       .shared = parts.Slice(gathered, n),
                       .round_bf16 = ctx.numerics.bf16},
                      parts, y);
  for (int64_t r = 0; r < n; ++r) {
    ctx.trace.Ids("expert_ids", layer, r, {routed.ids.row(r), static_cast<size_t>(w.top_k)});
  }
  ctx.trace.Values("expert_weights", layer, routed.weights);
  ctx.trace.Values("expert_scores", layer, routed.biased_scores);
}

void ApplyEngram(const Context& ctx, int layer, const EngramHash& hash,
                 std::span<const int32_t> token_classes, Batch* batch) {
  const Workspace::Scope scope(ctx.workspace);
  const ModelConfig& c = ctx.config;
  const EngramWeights& w = *ctx.weights.layers[layer].engram;
  const int64_t slots = c.engram.rows_per_token(), dim = c.engram.head_dim;
  Rows found = ctx.workspace.Take(batch->rows(), slots * dim);
  for (const Segment& s : batch->segments) {
    // Table rows lie far apart in a file that is not in memory: both threads wait for the disk.
    ctx.pool.ParallelFor(s.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<int32_t> classes;
      std::vector<int64_t> rows(slots);
      for (int64_t i = begin; i < end; ++i) {
        classes.clear();
        for (int64_t p = s.first_position + i;
             p >= 0 && static_cast<int>(classes.size()) < c.engram.max_ngram; --p) {
          classes.push_back(token_classes[s.state->tokens[p]]);
        }
        hash.Rows(classes, rows.data());
        for (int64_t k = 0; k < slots; ++k) {
          kernels::DequantizeRow(w.table, rows[k], found.row(s.begin + i) + k * dim);
        }
      }
    });
  }
  Rows kv = ctx.workspace.Take(batch->rows(), w.wkv.rows);
  ctx.MatMul({ctx.Linear(ctx.Quantized(found), w.wkv, kv)});
  Rows gates = ctx.workspace.Take(batch->rows(), c.streams);
  ctx.ops.engram(ctx.pool,
                 {.weight = w.weight.data(),
                  .streams = c.streams,
                  .eps = c.norm_eps,
                  .round_bf16 = ctx.numerics.bf16},
                 kv, batch->streams.view(), gates);
  ctx.trace.Values("engram_gate", layer, gates);
}

}  // namespace kuruma::model
