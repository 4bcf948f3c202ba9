// Routing, sparse attention and index scoring.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/reference/reference.h"

namespace kuruma::kernels::reference {
namespace {

// Values of every row a query attends, in order: window, then picks.
std::vector<float> GatherRows(const AttentionSpec& spec, const AttentionQuery& query) {
  std::vector<float> rows((query.window.size() + query.picks.size()) * spec.head_dim);
  float* next = rows.data();
  for (const std::byte* row : query.window) {
    LoadRow(spec.window_format, row, spec.head_dim, next);
    next += spec.head_dim;
  }
  for (int32_t pick : query.picks) {
    LoadRow(spec.compressed.format, spec.compressed.row(query.blocks, pick), spec.head_dim, next);
    next += spec.head_dim;
  }
  return rows;
}

void AttendHead(const AttentionSpec& spec, const float* q, float sink,
                const std::vector<float>& rows, float* out) {
  const int64_t d = spec.head_dim;
  const int64_t n = static_cast<int64_t>(rows.size()) / d;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  std::vector<float> p(n);
  for (int64_t j = 0; j < n; ++j) {
    double dot = 0;
    for (int64_t c = 0; c < d; ++c) dot += static_cast<double>(q[c]) * rows[j * d + c];
    p[j] = static_cast<float>(dot) * scale;
  }
  const float peak = *std::max_element(p.begin(), p.end());
  double denominator = 0;
  for (float& value : p) {
    value = static_cast<float>(std::exp(static_cast<double>(value - peak)));
    denominator += value;
    if (spec.round_bf16) value = RoundBf16(value);
  }
  denominator += std::exp(static_cast<double>(sink) - peak);
  for (int64_t c = 0; c < d; ++c) {
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(p[j]) * rows[j * d + c];
    out[c] = Round(sum / denominator, spec.round_bf16);
  }
}

float IndexScore(const IndexSpec& spec, const IndexQuery& query, const float* key) {
  double sum = 0;
  for (int64_t h = 0; h < spec.heads; ++h) {
    double dot = 0;
    const float* q = query.q + h * spec.dim;
    for (int64_t c = 0; c < spec.dim; ++c) dot += static_cast<double>(q[c]) * key[c];
    const float product = static_cast<float>(dot);
    if (spec.single_round) {
      sum += static_cast<double>(std::max(product, 0.0f)) * query.weights[h];
    } else {
      sum += RoundBf16(std::max(RoundBf16(product), 0.0f) * query.weights[h]);
    }
  }
  return Round(sum, spec.round_bf16);
}

}  // namespace

void Route(ThreadPool& pool, const RouterSpec& spec, ConstRows u, const RouterResult& out) {
  const int64_t experts = spec.gate.rows;
  pool.ParallelFor(u.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> gate(spec.gate.cols), scores(experts), biased(experts);
    std::vector<int32_t> order(experts);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t e = 0; e < experts; ++e) {
        DequantizeRow(spec.gate, e, gate.data());
        double dot = 0;
        for (int64_t c = 0; c < u.cols; ++c) dot += static_cast<double>(u.row(r)[c]) * gate[c];
        const double logit = static_cast<float>(dot);
        const double soft = logit > 20 ? logit : std::log1p(std::exp(logit));
        scores[e] = static_cast<float>(std::sqrt(soft));
        biased[e] = scores[e] + spec.bias[e];
      }
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + spec.top_k, order.end(),
                        [&](int32_t a, int32_t b) {
                          return biased[a] != biased[b] ? biased[a] > biased[b] : a < b;
                        });
      float sum = 0;
      for (int i = 0; i < spec.top_k; ++i) sum += scores[order[i]];
      for (int i = 0; i < spec.top_k; ++i) {
        out.ids.row(r)[i] = order[i];
        out.weights.row(r)[i] = scores[order[i]] / (sum + 1e-20f) * spec.scale;
      }
      if (out.biased_scores.cols > 0) {
        std::copy(biased.begin(), biased.end(), out.biased_scores.row(r));
      }
    }
  });
}

void Attention(ThreadPool& pool, const AttentionSpec& spec,
               std::span<const AttentionQuery> queries) {
  pool.ParallelFor(static_cast<int64_t>(queries.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const AttentionQuery& query = queries[i];
      const std::vector<float> rows = GatherRows(spec, query);
      if (rows.empty()) {
        std::fill_n(query.out, spec.heads * spec.head_dim, 0.0f);
        continue;
      }
      for (int64_t h = 0; h < spec.heads; ++h) {
        AttendHead(spec, query.q + h * spec.head_dim, spec.sink[h], rows,
                   query.out + h * spec.head_dim);
      }
    }
  });
}

void IndexScores(ThreadPool& pool, const IndexSpec& spec, std::span<const IndexQuery> queries) {
  for (const IndexQuery& query : queries) {
    pool.ParallelFor(query.visible, 16, [&](int64_t begin, int64_t end, int) {
      std::vector<float> key(spec.dim);
      for (int64_t j = begin; j < end; ++j) {
        LoadRow(spec.keys.format, spec.keys.row(query.blocks, j), spec.dim, key.data());
        query.scores[j] = IndexScore(spec, query, key.data());
      }
    });
  }
}

}  // namespace kuruma::kernels::reference
