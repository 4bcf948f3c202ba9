// Hot pieces of the training forward and backward pass, float32, contiguous rows.
//
// Every function works row by row; sums over rows (gradients of weights) are taken in kParts fixed
// parts and added in order, so results do not depend on the number of threads.
#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace {

using torch::Tensor;
constexpr int64_t kParts = 4;
constexpr int kStreams = 4;                              // hyper-connection streams
constexpr int kMix = kStreams * (2 + kStreams);

// exp with a relative error below 2e-7; exactly 0 below -87. Written so that compilers vectorise it.
inline float Exp(float x) {
  const float clamped = std::min(std::max(x, -87.0f), 88.0f);
  const float n = std::nearbyintf(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return x < -87.0f ? 0.0f : p * scale;
}

inline float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

template <typename F>
void ForRows(int64_t rows, const F& f) {
  at::parallel_for(0, rows, std::max<int64_t>(rows / 16, 64), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// f(row, sums): each part adds into its own `width` sums; returns their total.
template <typename F>
Tensor SumRows(int64_t rows, int64_t width, const F& f) {
  const Tensor parts = torch::zeros({kParts, width});
  float* sums = parts.data_ptr<float>();
  at::parallel_for(0, kParts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t row = rows * part / kParts; row < rows * (part + 1) / kParts; ++row) {
        f(row, sums + part * width);
      }
    }
  });
  return parts.sum(0);
}

inline float Dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// --- RMS norm -----------------------------------------------------------------------------------

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  const int64_t d = x.size(-1), rows = x.numel() / d;
  const Tensor y = torch::empty_like(x);
  const float *xp = x.data_ptr<float>(), *w = weight.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float* in = xp + row * d;
    float* out = yp + row * d;
    const float rstd = 1.0f / std::sqrt(Dot(in, in, d) / d + static_cast<float>(eps));
    for (int64_t i = 0; i < d; ++i) out[i] = w[i] * (in[i] * rstd);
  });
  return y;
}

std::vector<Tensor> RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, double eps) {
  const int64_t d = x.size(-1), rows = x.numel() / d;
  const Tensor dx = torch::empty_like(x);
  const float *xp = x.data_ptr<float>(), *w = weight.data_ptr<float>(), *dyp = dy.data_ptr<float>();
  float* dxp = dx.data_ptr<float>();
  const Tensor dw = SumRows(rows, d, [&](int64_t row, float* sums) {
    const float *in = xp + row * d, *g = dyp + row * d;
    float* out = dxp + row * d;
    const float rstd = 1.0f / std::sqrt(Dot(in, in, d) / d + static_cast<float>(eps));
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < d; ++i) dot += g[i] * w[i] * in[i];
    const float shift = dot * rstd * rstd * rstd / d;
    for (int64_t i = 0; i < d; ++i) {
      out[i] = g[i] * w[i] * rstd - in[i] * shift;
      sums[i] += g[i] * in[i] * rstd;
    }
  });
  return {dx, dw};
}

// --- hyper-connections --------------------------------------------------------------------------

// The Sinkhorn iterates of one token, every half step kept for the backward pass.
struct Sinkhorn {
  static constexpr int kCells = kStreams * kStreams;
  std::vector<float> steps;    // [half steps + 1][16], the first is the softmax plus eps
  std::vector<float> sums;     // [half steps][4], eps included
  float soft[kCells];          // the softmax

  void Run(const float* logits, int iterations, float eps) {
    const int halves = 2 * iterations - 1;
    steps.resize((halves + 1) * kCells);
    sums.resize(halves * kStreams);
    for (int j = 0; j < kStreams; ++j) {
      const float* row = logits + j * kStreams;
      const float peak = *std::max_element(row, row + kStreams);
      float total = 0;
      for (int k = 0; k < kStreams; ++k) total += soft[j * kStreams + k] = std::exp(row[k] - peak);
      for (int k = 0; k < kStreams; ++k) soft[j * kStreams + k] /= total;
    }
    for (int i = 0; i < kCells; ++i) steps[i] = soft[i] + eps;
    for (int half = 0; half < halves; ++half) Normalise(half, half % 2 == 0, eps);
  }

  void Normalise(int half, bool columns, float eps) {
    const float* from = &steps[half * kCells];
    float* to = &steps[(half + 1) * kCells];
    float* sum = &sums[half * kStreams];
    for (int i = 0; i < kStreams; ++i) sum[i] = eps;
    for (int j = 0; j < kStreams; ++j)
      for (int k = 0; k < kStreams; ++k) sum[columns ? k : j] += from[j * kStreams + k];
    for (int j = 0; j < kStreams; ++j)
      for (int k = 0; k < kStreams; ++k)
        to[j * kStreams + k] = from[j * kStreams + k] / sum[columns ? k : j];
  }

  // Turns the gradient of the result into that of the logits, in place.
  void Backward(int iterations, float* grad) const {
    for (int half = 2 * iterations - 2; half >= 0; --half) {
      const bool columns = half % 2 == 0;
      const float *result = &steps[(half + 1) * kCells], *sum = &sums[half * kStreams];
      float dot[kStreams] = {};
      for (int j = 0; j < kStreams; ++j)
        for (int k = 0; k < kStreams; ++k)
          dot[columns ? k : j] += grad[j * kStreams + k] * result[j * kStreams + k];
      for (int j = 0; j < kStreams; ++j)
        for (int k = 0; k < kStreams; ++k) {
          const int line = columns ? k : j;
          grad[j * kStreams + k] = (grad[j * kStreams + k] - dot[line]) / sum[line];
        }
    }
    for (int j = 0; j < kStreams; ++j) {
      const float dot = Dot(grad + j * kStreams, soft + j * kStreams, kStreams);
      for (int k = 0; k < kStreams; ++k)
        grad[j * kStreams + k] = (grad[j * kStreams + k] - dot) * soft[j * kStreams + k];
    }
  }
};

// Scaled logits of one token: raw * scale + base with the scale of each of the three parts.
inline void MixLogits(const float* raw, const float* scale, const float* base, float* out) {
  for (int i = 0; i < kMix; ++i) out[i] = raw[i] * scale[std::min(i / kStreams, 2)] + base[i];
}

std::vector<Tensor> HcSplit(const Tensor& raw, const Tensor& scale, const Tensor& base, int64_t iterations,
                            double eps) {
  const int64_t rows = raw.size(0);
  const Tensor pre = torch::empty({rows, kStreams}), post = torch::empty({rows, kStreams}),
               comb = torch::empty({rows, kStreams, kStreams});
  float *pp = pre.data_ptr<float>(), *qp = post.data_ptr<float>(), *cp = comb.data_ptr<float>();
  const float *rp = raw.data_ptr<float>(), *sp = scale.data_ptr<float>(), *bp = base.data_ptr<float>();
  at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
    Sinkhorn sinkhorn;
    float logits[kMix];
    for (int64_t row = begin; row < end; ++row) {
      MixLogits(rp + row * kMix, sp, bp, logits);
      for (int i = 0; i < kStreams; ++i) {
        pp[row * kStreams + i] = Sigmoid(logits[i]) + static_cast<float>(eps);
        qp[row * kStreams + i] = 2 * Sigmoid(logits[kStreams + i]);
      }
      sinkhorn.Run(logits + 2 * kStreams, iterations, eps);
      std::copy_n(&sinkhorn.steps[(2 * iterations - 1) * Sinkhorn::kCells], Sinkhorn::kCells,
                  cp + row * Sinkhorn::kCells);
    }
  });
  return {pre, post, comb};
}

std::vector<Tensor> HcSplitBackward(const Tensor& dpre, const Tensor& dpost, const Tensor& dcomb,
                                    const Tensor& raw, const Tensor& scale, const Tensor& base,
                                    int64_t iterations, double eps) {
  const int64_t rows = raw.size(0);
  const Tensor draw = torch::empty_like(raw);
  const float *rp = raw.data_ptr<float>(), *sp = scale.data_ptr<float>(), *bp = base.data_ptr<float>();
  const float *gp = dpre.data_ptr<float>(), *gq = dpost.data_ptr<float>(), *gc = dcomb.data_ptr<float>();
  float* out = draw.data_ptr<float>();
  // Sums: gradients of base, then of the three scales.
  const Tensor sums = SumRows(rows, kMix + 3, [&](int64_t row, float* total) {
    thread_local Sinkhorn sinkhorn;
    float logits[kMix], grad[kMix];
    MixLogits(rp + row * kMix, sp, bp, logits);
    for (int i = 0; i < kStreams; ++i) {
      const float a = Sigmoid(logits[i]), b = Sigmoid(logits[kStreams + i]);
      grad[i] = gp[row * kStreams + i] * a * (1 - a);
      grad[kStreams + i] = 2 * gq[row * kStreams + i] * b * (1 - b);
    }
    sinkhorn.Run(logits + 2 * kStreams, iterations, eps);
    std::copy_n(gc + row * Sinkhorn::kCells, Sinkhorn::kCells, grad + 2 * kStreams);
    sinkhorn.Backward(iterations, grad + 2 * kStreams);
    for (int i = 0; i < kMix; ++i) {
      const int part = std::min(i / kStreams, 2);
      out[row * kMix + i] = grad[i] * sp[part];
      total[i] += grad[i];
      total[kMix + part] += grad[i] * rp[row * kMix + i];
    }
  });
  return {draw, sums.slice(0, kMix, kMix + 3).clone(), sums.slice(0, 0, kMix).clone()};
}

Tensor HcCollapse(const Tensor& x, const Tensor& pre) {
  const int64_t rows = x.size(0), d = x.size(2);
  const Tensor y = torch::empty({rows, d});
  const float *xp = x.data_ptr<float>(), *pp = pre.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float *in = xp + row * kStreams * d, *p = pp + row * kStreams;
    float* out = yp + row * d;
    for (int64_t i = 0; i < d; ++i)
      out[i] = p[0] * in[i] + p[1] * in[d + i] + p[2] * in[2 * d + i] + p[3] * in[3 * d + i];
  });
  return y;
}

std::vector<Tensor> HcCollapseBackward(const Tensor& dy, const Tensor& x, const Tensor& pre) {
  const int64_t rows = x.size(0), d = x.size(2);
  const Tensor dx = torch::empty_like(x), dpre = torch::empty_like(pre);
  const float *xp = x.data_ptr<float>(), *pp = pre.data_ptr<float>(), *gp = dy.data_ptr<float>();
  float *dxp = dx.data_ptr<float>(), *dpp = dpre.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float* g = gp + row * d;
    for (int s = 0; s < kStreams; ++s) {
      const int64_t at = (row * kStreams + s) * d;
      const float p = pp[row * kStreams + s];
      for (int64_t i = 0; i < d; ++i) dxp[at + i] = p * g[i];
      dpp[row * kStreams + s] = Dot(g, xp + at, d);
    }
  });
  return {dx, dpre};
}

Tensor HcExpand(const Tensor& y, const Tensor& x, const Tensor& post, const Tensor& comb) {
  const int64_t rows = x.size(0), d = x.size(2);
  const Tensor out = torch::empty_like(x);
  const float *yp = y.data_ptr<float>(), *xp = x.data_ptr<float>();
  const float *qp = post.data_ptr<float>(), *cp = comb.data_ptr<float>();
  float* op = out.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float *in = xp + row * kStreams * d, *v = yp + row * d, *c = cp + row * kStreams * kStreams;
    for (int k = 0; k < kStreams; ++k) {
      float* to = op + (row * kStreams + k) * d;
      const float q = qp[row * kStreams + k];
      for (int64_t i = 0; i < d; ++i)
        to[i] = q * v[i] + c[k] * in[i] + c[4 + k] * in[d + i] + c[8 + k] * in[2 * d + i] +
                c[12 + k] * in[3 * d + i];
    }
  });
  return out;
}

std::vector<Tensor> HcExpandBackward(const Tensor& grad, const Tensor& y, const Tensor& x, const Tensor& post,
                                     const Tensor& comb) {
  const int64_t rows = x.size(0), d = x.size(2);
  const Tensor dy = torch::empty_like(y), dx = torch::empty_like(x), dpost = torch::empty_like(post),
               dcomb = torch::empty_like(comb);
  const float *gp = grad.data_ptr<float>(), *yp = y.data_ptr<float>(), *xp = x.data_ptr<float>();
  const float *qp = post.data_ptr<float>(), *cp = comb.data_ptr<float>();
  float *dyp = dy.data_ptr<float>(), *dxp = dx.data_ptr<float>();
  float *dqp = dpost.data_ptr<float>(), *dcp = dcomb.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const int64_t at = row * kStreams * d;
    const float *g = gp + at, *in = xp + at, *v = yp + row * d;
    const float *q = qp + row * kStreams, *c = cp + row * kStreams * kStreams;
    float* to = dyp + row * d;
    for (int64_t i = 0; i < d; ++i)
      to[i] = q[0] * g[i] + q[1] * g[d + i] + q[2] * g[2 * d + i] + q[3] * g[3 * d + i];
    for (int j = 0; j < kStreams; ++j) {
      float* dj = dxp + at + j * d;
      const float* w = c + j * kStreams;
      for (int64_t i = 0; i < d; ++i)
        dj[i] = w[0] * g[i] + w[1] * g[d + i] + w[2] * g[2 * d + i] + w[3] * g[3 * d + i];
      dqp[row * kStreams + j] = Dot(g + j * d, v, d);
      for (int k = 0; k < kStreams; ++k)
        dcp[(row * kStreams + j) * kStreams + k] = Dot(in + j * d, g + k * d, d);
    }
  });
  return {dy, dx, dpost, dcomb};
}

// --- rotation, SwiGLU ---------------------------------------------------------------------------

// x [.., heads, width]; cos, sin [positions, pairs]; the leading size of x is batch * positions.
Tensor Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t heads, double direction) {
  const int64_t width = x.size(-1), pairs = cos.size(-1), positions = cos.numel() / pairs;
  const int64_t rows = x.numel() / width;
  const Tensor y = torch::empty_like(x);
  const float *xp = x.data_ptr<float>(), *cp = cos.data_ptr<float>(), *sp = sin.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  const float sign = static_cast<float>(direction);
  ForRows(rows, [&](int64_t row) {
    const int64_t place = row / heads % positions, start = width - 2 * pairs;
    const float *in = xp + row * width, *c = cp + place * pairs, *s = sp + place * pairs;
    float* out = yp + row * width;
    std::copy_n(in, start, out);
    for (int64_t i = 0; i < pairs; ++i) {
      const float a = in[start + 2 * i], b = in[start + 2 * i + 1], t = sign * s[i];
      out[start + 2 * i] = a * c[i] - b * t;
      out[start + 2 * i + 1] = a * t + b * c[i];
    }
  });
  return y;
}

Tensor SwiGlu(const Tensor& gate, const Tensor& up, double limit) {
  const Tensor y = torch::empty_like(gate);
  const float *g = gate.data_ptr<float>(), *u = up.data_ptr<float>(), top = static_cast<float>(limit);
  float* out = y.data_ptr<float>();
  at::parallel_for(0, gate.numel(), 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float a = std::min(g[i], top), b = std::min(std::max(u[i], -top), top);
      out[i] = a / (1.0f + Exp(-a)) * b;
    }
  });
  return y;
}

std::vector<Tensor> SwiGluBackward(const Tensor& dy, const Tensor& gate, const Tensor& up, double limit) {
  const Tensor dg = torch::empty_like(gate), du = torch::empty_like(up);
  const float *g = gate.data_ptr<float>(), *u = up.data_ptr<float>(), *d = dy.data_ptr<float>();
  float *dgp = dg.data_ptr<float>(), *dup = du.data_ptr<float>(), top = static_cast<float>(limit);
  at::parallel_for(0, gate.numel(), 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float a = std::min(g[i], top), b = std::min(std::max(u[i], -top), top);
      const float s = 1.0f / (1.0f + Exp(-a));
      dgp[i] = g[i] > top ? 0.0f : d[i] * b * s * (1 + a * (1 - s));
      dup[i] = u[i] > top || u[i] < -top ? 0.0f : d[i] * a * s;
    }
  });
  return {dg, du};
}

// --- softmax with sink --------------------------------------------------------------------------

// scores [queries * heads, keys]; bias [n, keys], row of query q is q % n; sink [heads].
Tensor SinkSoftmax(const Tensor& scores, const Tensor& bias, const Tensor& sink) {
  const int64_t keys = scores.size(-1), heads = sink.size(0), rows = scores.numel() / keys;
  const int64_t bias_rows = bias.numel() / keys;
  const Tensor y = torch::empty_like(scores);
  const float *sp = scores.data_ptr<float>(), *bp = bias.data_ptr<float>(), *kp = sink.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float *in = sp + row * keys, *b = bp + row / heads % bias_rows * keys;
    float *out = yp + row * keys, peak = kp[row % heads], total = 0;
    for (int64_t i = 0; i < keys; ++i) out[i] = in[i] + b[i];
#pragma omp simd reduction(max : peak)
    for (int64_t i = 0; i < keys; ++i) peak = std::max(peak, out[i]);
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < keys; ++i) total += out[i] = Exp(out[i] - peak);
    const float scale = 1.0f / (total + std::exp(kp[row % heads] - peak));
    for (int64_t i = 0; i < keys; ++i) out[i] *= scale;
  });
  return y;
}

std::vector<Tensor> SinkSoftmaxBackward(const Tensor& dy, const Tensor& p, int64_t heads) {
  const int64_t keys = p.size(-1), rows = p.numel() / keys;
  const Tensor ds = torch::empty_like(p);
  const float *gp = dy.data_ptr<float>(), *pp = p.data_ptr<float>();
  float* out = ds.data_ptr<float>();
  const Tensor dsink = SumRows(rows, heads, [&](int64_t row, float* sums) {
    const float *g = gp + row * keys, *q = pp + row * keys;
    float* to = out + row * keys;
    float dot = 0, mass = 0;
#pragma omp simd reduction(+ : dot, mass)
    for (int64_t i = 0; i < keys; ++i) {
      dot += g[i] * q[i];
      mass += q[i];
    }
    for (int64_t i = 0; i < keys; ++i) to[i] = q[i] * (g[i] - dot);
    sums[row % heads] -= (1 - mass) * dot;
  });
  return {ds, dsink};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("rms_norm", &RmsNorm);
  m.def("rms_norm_backward", &RmsNormBackward);
  m.def("hc_split", &HcSplit);
  m.def("hc_split_backward", &HcSplitBackward);
  m.def("hc_collapse", &HcCollapse);
  m.def("hc_collapse_backward", &HcCollapseBackward);
  m.def("hc_expand", &HcExpand);
  m.def("hc_expand_backward", &HcExpandBackward);
  m.def("rotate", &Rotate);
  m.def("swiglu", &SwiGlu);
  m.def("swiglu_backward", &SwiGluBackward);
  m.def("sink_softmax", &SinkSoftmax);
  m.def("sink_softmax_backward", &SinkSoftmaxBackward);
}
