// Hyper-connections: coefficients with their Sinkhorn steps, collapse and expansion of the streams.
#include "rows.h"

namespace train_tiny {
namespace {

constexpr int kStreams = 4;  // hyper-connection streams
constexpr int kMix = kStreams * (2 + kStreams);
constexpr int kLanes = 8;  // tokens that go through the Sinkhorn steps side by side
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
        for (int k = 0; k < kStreams; ++k)
          total += soft_[j * kStreams + k][t] = Exp(row[k][t] - peak);
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
      for (int t = 0; t < kLanes; ++t)
        grad[i][t] = (grad[i][t] - dot[i / kStreams][t]) * soft_[i][t];
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

inline int Part(int i) { return std::min(i / kStreams, 2); }  // pre, post or comb

// raw * scale + base of the tokens from `row` on; lanes beyond the last token repeat it.
inline void MixLogits(const float* raw, int64_t row, int64_t rows, const float* scale,
                      const float* base, Lane* out) {
  for (int t = 0; t < kLanes; ++t) {
    const float* in = raw + std::min(row + t, rows - 1) * kMix;
    for (int i = 0; i < kMix; ++i) out[i][t] = in[i] * scale[Part(i)] + base[i];
  }
}

inline float SigmoidOf(float x) { return 1.0f / (1.0f + Exp(-x)); }

}  // namespace

std::vector<Tensor> HcSplit(const Tensor& raw, const Tensor& scale, const Tensor& base,
                            int64_t iterations, double eps) {
  const int64_t rows = raw.size(0);
  const Tensor pre = torch::empty({rows, kStreams}), post = torch::empty({rows, kStreams}),
               comb = torch::empty({rows, kStreams, kStreams});
  float *pp = pre.data_ptr<float>(), *qp = post.data_ptr<float>(), *cp = comb.data_ptr<float>();
  const float *rp = raw.data_ptr<float>(), *sp = scale.data_ptr<float>(),
              *bp = base.data_ptr<float>();
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

std::vector<Tensor> HcSplitBackward(const std::vector<Tensor>& grads,
                                    const std::vector<Tensor>& inputs, int64_t iterations,
                                    double eps) {
  const Tensor &dpre = grads[0], &dpost = grads[1], &dcomb = grads[2];
  const Tensor &raw = inputs[0], &scale = inputs[1], &base = inputs[2];
  const int64_t rows = raw.size(0);
  const Tensor draw = torch::empty_like(raw);
  const float *rp = raw.data_ptr<float>(), *sp = scale.data_ptr<float>(),
              *bp = base.data_ptr<float>();
  const float *gp = dpre.data_ptr<float>(), *gq = dpost.data_ptr<float>(),
              *gc = dcomb.data_ptr<float>();
  float* out = draw.data_ptr<float>();
  // Sums: gradients of base, then of the three scales.
  const Tensor sums =
      SumRows((rows + kLanes - 1) / kLanes, kMix + 3, [&](int64_t group, float* total) {
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
    const float *in = xp + row * kStreams * d, *v = yp + row * d,
                *c = cp + row * kStreams * kStreams;
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

std::vector<Tensor> HcExpandBackward(const Tensor& grad, const Tensor& y, const Tensor& x,
                                     const Tensor& post, const Tensor& comb) {
  const int64_t rows = x.size(0), d = x.size(2);
  const Tensor dy = torch::empty_like(y), dx = torch::empty_like(x),
               dpost = torch::empty_like(post), dcomb = torch::empty_like(comb);
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

}  // namespace train_tiny
