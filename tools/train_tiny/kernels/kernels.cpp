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

constexpr int kLanes = 8;    // tokens that go through the Sinkhorn steps side by side
constexpr int kCells = kStreams * kStreams;
using Lane = float[kLanes];

// The Sinkhorn iterates of kLanes tokens, every half step kept for the backward pass.
class Sinkhorn {
 public:
  explicit Sinkhorn(int iterations)
      : halves_(2 * iterations - 1),
        steps_((halves_ + 1) * kCells * kLanes),
        inverse_(halves_ * kStreams * kLanes) {}

  const Lane* result() const { return Step(halves_); }

  void Run(const Lane* logits, float eps) {
    Lane* first = Step(0);
    for (int j = 0; j < kStreams; ++j) {
      const Lane* row = logits + j * kStreams;
      for (int t = 0; t < kLanes; ++t) {
        const float peak = std::max(std::max(row[0][t], row[1][t]), std::max(row[2][t], row[3][t]));
        float total = 0;
        for (int k = 0; k < kStreams; ++k) total += soft_[j * kStreams + k][t] = Exp(row[k][t] - peak);
        for (int k = 0; k < kStreams; ++k) soft_[j * kStreams + k][t] /= total;
      }
    }
    for (int i = 0; i < kCells; ++i)
      for (int t = 0; t < kLanes; ++t) first[i][t] = soft_[i][t] + eps;
    for (int half = 0; half < halves_; ++half) Normalise(half, eps);
  }

  // Turns the gradient of the result into that of the logits, in place.
  void Backward(Lane* grad) {
    for (int half = halves_ - 1; half >= 0; --half) {
      const Lane *result = Step(half + 1), *inverse = Inverse(half);
      Lane dot[kStreams] = {};
      for (int i = 0; i < kCells; ++i)
        for (int t = 0; t < kLanes; ++t) dot[Line(half, i)][t] += grad[i][t] * result[i][t];
      for (int i = 0; i < kCells; ++i)
        for (int t = 0; t < kLanes; ++t)
          grad[i][t] = (grad[i][t] - dot[Line(half, i)][t]) * inverse[Line(half, i)][t];
    }
    Lane dot[kStreams] = {};
    for (int i = 0; i < kCells; ++i)
      for (int t = 0; t < kLanes; ++t) dot[i / kStreams][t] += grad[i][t] * soft_[i][t];
    for (int i = 0; i < kCells; ++i)
      for (int t = 0; t < kLanes; ++t) grad[i][t] = (grad[i][t] - dot[i / kStreams][t]) * soft_[i][t];
  }

 private:
  // Even half steps normalise columns, odd ones rows.
  static int Line(int half, int cell) { return half % 2 == 0 ? cell % kStreams : cell / kStreams; }
  Lane* Step(int half) { return reinterpret_cast<Lane*>(steps_.data()) + half * kCells; }
  const Lane* Step(int half) const {
    return reinterpret_cast<const Lane*>(steps_.data()) + half * kCells;
  }
  Lane* Inverse(int half) { return reinterpret_cast<Lane*>(inverse_.data()) + half * kStreams; }

  void Normalise(int half, float eps) {
    const Lane* from = Step(half);
    Lane *to = Step(half + 1), *inverse = Inverse(half);
    for (int i = 0; i < kStreams; ++i)
      for (int t = 0; t < kLanes; ++t) inverse[i][t] = eps;
    for (int i = 0; i < kCells; ++i)
      for (int t = 0; t < kLanes; ++t) inverse[Line(half, i)][t] += from[i][t];
    for (int i = 0; i < kStreams; ++i)
      for (int t = 0; t < kLanes; ++t) inverse[i][t] = 1.0f / inverse[i][t];
    for (int i = 0; i < kCells; ++i)
      for (int t = 0; t < kLanes; ++t) to[i][t] = from[i][t] * inverse[Line(half, i)][t];
  }

  int halves_;
  std::vector<float> steps_, inverse_;
  Lane soft_[kCells];
};

inline int Part(int i) { return std::min(i / kStreams, 2); }    // pre, post or comb

// raw * scale + base of the tokens from `row` on; lanes beyond the last token repeat it.
inline void MixLogits(const float* raw, int64_t row, int64_t rows, const float* scale, const float* base,
                      Lane* out) {
  for (int t = 0; t < kLanes; ++t) {
    const float* in = raw + std::min(row + t, rows - 1) * kMix;
    for (int i = 0; i < kMix; ++i) out[i][t] = in[i] * scale[Part(i)] + base[i];
  }
}

inline float SigmoidOf(float x) { return 1.0f / (1.0f + Exp(-x)); }

std::vector<Tensor> HcSplit(const Tensor& raw, const Tensor& scale, const Tensor& base, int64_t iterations,
                            double eps) {
  const int64_t rows = raw.size(0);
  const Tensor pre = torch::empty({rows, kStreams}), post = torch::empty({rows, kStreams}),
               comb = torch::empty({rows, kStreams, kStreams});
  float *pp = pre.data_ptr<float>(), *qp = post.data_ptr<float>(), *cp = comb.data_ptr<float>();
  const float *rp = raw.data_ptr<float>(), *sp = scale.data_ptr<float>(), *bp = base.data_ptr<float>();
  at::parallel_for(0, (rows + kLanes - 1) / kLanes, 16, [&](int64_t begin, int64_t end) {
    Sinkhorn sinkhorn(iterations);
    Lane logits[kMix];
    for (int64_t row = begin * kLanes; row < std::min(end * kLanes, rows); row += kLanes) {
      MixLogits(rp, row, rows, sp, bp, logits);
      sinkhorn.Run(logits + 2 * kStreams, eps);
      for (int t = 0; t < std::min<int64_t>(kLanes, rows - row); ++t) {
        for (int i = 0; i < kStreams; ++i) {
          pp[(row + t) * kStreams + i] = SigmoidOf(logits[i][t]) + static_cast<float>(eps);
          qp[(row + t) * kStreams + i] = 2 * SigmoidOf(logits[kStreams + i][t]);
        }
        for (int i = 0; i < kCells; ++i) cp[(row + t) * kCells + i] = sinkhorn.result()[i][t];
      }
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
  const Tensor sums = SumRows((rows + kLanes - 1) / kLanes, kMix + 3, [&](int64_t group, float* total) {
    Sinkhorn sinkhorn(iterations);
    const int64_t row = group * kLanes;
    const int count = std::min<int64_t>(kLanes, rows - row);
    Lane logits[kMix], grad[kMix] = {};
    MixLogits(rp, row, rows, sp, bp, logits);
    sinkhorn.Run(logits + 2 * kStreams, eps);
    for (int t = 0; t < count; ++t) {
      for (int i = 0; i < kStreams; ++i) {
        const float a = SigmoidOf(logits[i][t]), b = SigmoidOf(logits[kStreams + i][t]);
        grad[i][t] = gp[(row + t) * kStreams + i] * a * (1 - a);
        grad[kStreams + i][t] = 2 * gq[(row + t) * kStreams + i] * b * (1 - b);
      }
      for (int i = 0; i < kCells; ++i) grad[2 * kStreams + i][t] = gc[(row + t) * kCells + i];
    }
    sinkhorn.Backward(grad + 2 * kStreams);
    for (int t = 0; t < count; ++t) {
      for (int i = 0; i < kMix; ++i) {
        out[(row + t) * kMix + i] = grad[i][t] * sp[Part(i)];
        total[i] += grad[i][t];
        total[kMix + Part(i)] += grad[i][t] * rp[(row + t) * kMix + i];
      }
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

// --- Engram gate --------------------------------------------------------------------------------

// One token and stream: the gate and what its gradient needs.
struct EngramGate {
  float x_rstd, key_rstd, z, gate;

  EngramGate(const float* x, const float* key, const float* weight, int64_t d, float eps) {
    float xx = 0, kk = 0, xk = 0;
#pragma omp simd reduction(+ : xx, kk, xk)
    for (int64_t i = 0; i < d; ++i) {
      xx += x[i] * x[i];
      kk += key[i] * key[i];
      xk += x[i] * weight[i] * key[i];
    }
    x_rstd = 1.0f / std::sqrt(xx / d + eps);
    key_rstd = 1.0f / std::sqrt(kk / d + eps);
    z = xk * x_rstd * key_rstd / std::sqrt(static_cast<float>(d));
    gate = Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(z), 1e-6f)), z));
  }
};

// x, key [N, h, d], value [N, d], weight [h, d]: x + gate * value.
Tensor EngramApply(const Tensor& x, const Tensor& kv, const Tensor& weight, double eps) {
  const int64_t rows = x.size(0), h = x.size(1), d = x.size(2), width = kv.size(1);
  const Tensor y = torch::empty_like(x);
  const float *xp = x.data_ptr<float>(), *kp = kv.data_ptr<float>(), *wp = weight.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float *in = xp + row * h * d, *key = kp + row * width, *value = key + h * d;
    for (int64_t s = 0; s < h; ++s) {
      const float gate = EngramGate(in + s * d, key + s * d, wp + s * d, d, eps).gate;
      float* out = yp + (row * h + s) * d;
      for (int64_t i = 0; i < d; ++i) out[i] = in[s * d + i] + gate * value[i];
    }
  });
  return y;
}

std::vector<Tensor> EngramBackward(const Tensor& dy, const Tensor& x, const Tensor& kv, const Tensor& weight,
                                   double eps) {
  const int64_t rows = x.size(0), h = x.size(1), d = x.size(2), width = kv.size(1);
  const Tensor dx = torch::empty_like(x), dkv = torch::empty_like(kv);
  const float *xp = x.data_ptr<float>(), *kp = kv.data_ptr<float>(), *wp = weight.data_ptr<float>();
  const float* gp = dy.data_ptr<float>();
  float *dxp = dx.data_ptr<float>(), *dkp = dkv.data_ptr<float>();
  const Tensor dw = SumRows(rows, h * d, [&](int64_t row, float* sums) {
    const float* value = kp + row * width + h * d;
    float* dvalue = dkp + row * width + h * d;
    std::fill_n(dvalue, d, 0.0f);
    for (int64_t s = 0; s < h; ++s) {
      const float *in = xp + (row * h + s) * d, *key = kp + row * width + s * d, *w = wp + s * d;
      const float* g = gp + (row * h + s) * d;
      float *to = dxp + (row * h + s) * d, *dkey = dkp + row * width + s * d, *dweight = sums + s * d;
      const EngramGate e(in, key, w, d, eps);
      const float slope = std::fabs(e.z) > 1e-6f ? 0.5f / std::sqrt(std::fabs(e.z)) : 0.0f;
      const float dz = Dot(g, value, d) * e.gate * (1 - e.gate) * slope;
      const float dot = dz * e.x_rstd * e.key_rstd / std::sqrt(static_cast<float>(d));
      const float x_shift = dz * e.z * e.x_rstd * e.x_rstd / d;
      const float key_shift = dz * e.z * e.key_rstd * e.key_rstd / d;
      for (int64_t i = 0; i < d; ++i) {
        to[i] = g[i] + dot * w[i] * key[i] - x_shift * in[i];
        dkey[i] = dot * w[i] * in[i] - key_shift * key[i];
        dweight[i] += dot * in[i] * key[i];
        dvalue[i] += e.gate * g[i];
      }
    }
  });
  return {dx, dkv, dw.view({h, d})};
}

// --- softmax with sink --------------------------------------------------------------------------

// Scores come in two parts that share one softmax: window rows and compressed entries (maybe none).
struct Part2 {
  const float *scores, *bias;
  float* out;
  int64_t keys, bias_rows;
};

Part2 MakePart(const Tensor& scores, const Tensor& bias, const Tensor& out) {
  const int64_t keys = scores.size(-1);
  return {scores.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), keys,
          keys ? bias.numel() / keys : 1};
}

// scores [.., queries, heads, keys] times `scale`; bias [n, keys], its row for query q is q % n; sink [heads].
std::vector<Tensor> SinkSoftmax(const Tensor& near, const Tensor& near_bias, const Tensor& far,
                                const Tensor& far_bias, const Tensor& sink, double scale) {
  const Tensor near_out = torch::empty_like(near), far_out = torch::empty_like(far);
  const Part2 parts[2] = {MakePart(near, near_bias, near_out), MakePart(far, far_bias, far_out)};
  const int64_t heads = sink.size(0), rows = near.numel() / near.size(-1);
  const float *sinks = sink.data_ptr<float>(), factor = static_cast<float>(scale);
  ForRows(rows, [&](int64_t row) {
    const float extra = sinks[row % heads];
    float peak = extra, total = 0;
    for (const Part2& p : parts) {
      const float *in = p.scores + row * p.keys, *b = p.bias + row / heads % p.bias_rows * p.keys;
      float* out = p.out + row * p.keys;
      float top = peak;
#pragma omp simd reduction(max : top)
      for (int64_t i = 0; i < p.keys; ++i) {
        out[i] = in[i] * factor + b[i];
        top = std::max(top, out[i]);
      }
      peak = top;
    }
    for (const Part2& p : parts) {
      float *out = p.out + row * p.keys, sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < p.keys; ++i) sum += out[i] = Exp(out[i] - peak);
      total += sum;
    }
    const float inverse = 1.0f / (total + std::exp(extra - peak));
    for (const Part2& p : parts) {
      float* out = p.out + row * p.keys;
      for (int64_t i = 0; i < p.keys; ++i) out[i] *= inverse;
    }
  });
  return {near_out, far_out};
}

std::vector<Tensor> SinkSoftmaxBackward(const Tensor& dnear, const Tensor& dfar, const Tensor& near,
                                        const Tensor& far, int64_t heads, double scale) {
  const Tensor near_out = torch::empty_like(near), far_out = torch::empty_like(far);
  const Tensor *grads[2] = {&dnear, &dfar}, *probabilities[2] = {&near, &far}, *outs[2] = {&near_out, &far_out};
  const int64_t rows = near.numel() / near.size(-1);
  const float factor = static_cast<float>(scale);
  const Tensor dsink = SumRows(rows, heads, [&](int64_t row, float* sums) {
    float dot = 0, mass = 0;
    for (int part = 0; part < 2; ++part) {
      const int64_t keys = probabilities[part]->size(-1);
      const float *g = grads[part]->data_ptr<float>() + row * keys;
      const float *p = probabilities[part]->data_ptr<float>() + row * keys;
#pragma omp simd reduction(+ : dot, mass)
      for (int64_t i = 0; i < keys; ++i) {
        dot += g[i] * p[i];
        mass += p[i];
      }
    }
    for (int part = 0; part < 2; ++part) {
      const int64_t keys = probabilities[part]->size(-1);
      const float *g = grads[part]->data_ptr<float>() + row * keys;
      const float *p = probabilities[part]->data_ptr<float>() + row * keys;
      float* to = outs[part]->data_ptr<float>() + row * keys;
      for (int64_t i = 0; i < keys; ++i) to[i] = factor * p[i] * (g[i] - dot);
    }
    sums[row % heads] -= (1 - mass) * dot;
  });
  return {near_out, far_out, dsink};
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
  m.def("engram", &EngramApply);
  m.def("engram_backward", &EngramBackward);
  m.def("sink_softmax", &SinkSoftmax);
  m.def("sink_softmax_backward", &SinkSoftmaxBackward);
}
