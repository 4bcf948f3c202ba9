// Hyper-connections and the Engram gate: everything that touches the residual streams.
#include <algorithm>
#include <vector>

#include "kernels/reference/reference.h"

namespace kuruma::kernels::reference {
namespace {

// logits [streams * (2 + streams)] -> pre | post | comb of one row.
void SinkhornSplit(const HcSite& site, const float* logits, const HcMix& out, int64_t row) {
  const int n = site.streams;
  for (int i = 0; i < n; ++i) {
    const double pre = static_cast<double>(logits[i]) * site.scale[0] + site.base[i];
    const double post = static_cast<double>(logits[n + i]) * site.scale[1] + site.base[n + i];
    out.pre.row(row)[i] = static_cast<float>(Sigmoid(pre) + site.eps);
    out.post.row(row)[i] = static_cast<float>(2 * Sigmoid(post));
  }
  std::vector<double> c(n * n);
  for (int i = 0; i < n * n; ++i) {
    c[i] = static_cast<double>(logits[2 * n + i]) * site.scale[2] + site.base[2 * n + i];
  }
  for (int j = 0; j < n; ++j) {  // softmax over each row
    double* row_begin = c.data() + j * n;
    const double peak = *std::max_element(row_begin, row_begin + n);
    double sum = 0;
    for (int k = 0; k < n; ++k) sum += row_begin[k] = std::exp(row_begin[k] - peak);
    for (int k = 0; k < n; ++k) row_begin[k] = row_begin[k] / sum + site.eps;
  }
  const auto normalise_columns = [&] {
    for (int k = 0; k < n; ++k) {
      double sum = 0;
      for (int j = 0; j < n; ++j) sum += c[j * n + k];
      for (int j = 0; j < n; ++j) c[j * n + k] /= sum + site.eps;
    }
  };
  const auto normalise_rows = [&] {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += c[j * n + k];
      for (int k = 0; k < n; ++k) c[j * n + k] /= sum + site.eps;
    }
  };
  normalise_columns();
  for (int iteration = 1; iteration < site.iterations; ++iteration) {
    normalise_rows();
    normalise_columns();
  }
  for (int i = 0; i < n * n; ++i) out.comb.row(row)[i] = static_cast<float>(c[i]);
}

}  // namespace

void HcMixCoefficients(ThreadPool& pool, const HcSite& site, ConstRows streams, HcMix out) {
  const int64_t outputs = site.fn.rows;
  const float* fn = reinterpret_cast<const float*>(site.fn.row(0));
  pool.ParallelFor(streams.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> logits(outputs);
    for (int64_t r = begin; r < end; ++r) {
      const float* x = streams.row(r);
      double squares = 0;
      for (int64_t c = 0; c < streams.cols; ++c) squares += static_cast<double>(x[c]) * x[c];
      const double rstd =
          1.0 / std::sqrt(squares / static_cast<double>(streams.cols) + site.norm_eps);
      for (int64_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (int64_t c = 0; c < streams.cols; ++c) {
          sum += static_cast<double>(x[c]) * fn[o * streams.cols + c];
        }
        logits[o] = static_cast<float>(sum * rstd);
      }
      SinkhornSplit(site, logits.data(), out, r);
    }
  });
}

void HcCollapse(ThreadPool& pool, ConstRows streams, ConstRows pre, bool round_bf16, Rows u) {
  pool.ParallelFor(u.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < u.cols; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < pre.cols; ++i) {
          sum += static_cast<double>(pre.row(r)[i]) * streams.row(r)[i * u.cols + c];
        }
        u.row(r)[c] = Round(sum, round_bf16);
      }
    }
  });
}

void HcExpand(ThreadPool& pool, ConstRows y, const HcMix& mix, bool round_bf16, Rows streams) {
  const int64_t n = mix.post.cols;
  const int64_t d = y.cols;
  pool.ParallelFor(y.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<double> old(n);
    for (int64_t r = begin; r < end; ++r) {
      const float* comb = mix.comb.row(r);
      for (int64_t c = 0; c < d; ++c) {
        for (int64_t j = 0; j < n; ++j) old[j] = streams.row(r)[j * d + c];
        for (int64_t k = 0; k < n; ++k) {
          double mixed = 0;
          for (int64_t j = 0; j < n; ++j) mixed += comb[j * n + k] * old[j];
          streams.row(r)[k * d + c] =
              Round(static_cast<double>(mix.post.row(r)[k]) * y.row(r)[c] + mixed, round_bf16);
        }
      }
    }
  });
}

void Engram(ThreadPool& pool, const EngramSpec& spec, ConstRows kv, Rows streams, Rows gates) {
  const int64_t d = streams.cols / spec.streams;
  pool.ParallelFor(streams.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* value = kv.row(r) + spec.streams * d;
      for (int i = 0; i < spec.streams; ++i) {
        float* x = streams.row(r) + i * d;
        const float* key = kv.row(r) + i * d;
        double xx = 0, kk = 0, z = 0;
        for (int64_t c = 0; c < d; ++c) {
          xx += static_cast<double>(x[c]) * x[c];
          kk += static_cast<double>(key[c]) * key[c];
          z += static_cast<double>(x[c]) * spec.weight[i * d + c] * key[c];
        }
        const double size = static_cast<double>(d);
        z *=
            1 / std::sqrt(xx / size + spec.eps) / std::sqrt(kk / size + spec.eps) / std::sqrt(size);
        const double root = std::sqrt(std::max(std::fabs(z), 1e-6));
        const double gate = Sigmoid(std::copysign(root, z));
        gates.row(r)[i] = static_cast<float>(gate);
        for (int64_t c = 0; c < d; ++c) x[c] = Round(x[c] + gate * value[c], spec.round_bf16);
      }
    }
  });
}

}  // namespace kuruma::kernels::reference
