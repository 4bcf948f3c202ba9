// Hot pieces of the training forward and backward pass, float32, contiguous rows.
#include "rows.h"

namespace train_tiny {
namespace {

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

std::vector<Tensor> RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                    double eps) {
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

// Mean of squares of every row [N, d] -> [N], and its gradient.
Tensor MeanSquare(const Tensor& x) {
  const int64_t rows = x.size(0), d = x.size(1);
  const Tensor y = torch::empty({rows});
  const float* xp = x.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  ForRows(rows, [&](int64_t row) { yp[row] = Dot(xp + row * d, xp + row * d, d) / d; });
  return y;
}

Tensor MeanSquareBackward(const Tensor& dy, const Tensor& x) {
  const int64_t rows = x.size(0), d = x.size(1);
  const Tensor dx = torch::empty_like(x);
  const float *gp = dy.data_ptr<float>(), *xp = x.data_ptr<float>();
  float* dxp = dx.data_ptr<float>();
  ForRows(rows, [&](int64_t row) {
    const float factor = 2 * gp[row] / d;
    for (int64_t i = row * d; i < (row + 1) * d; ++i) dxp[i] = factor * xp[i];
  });
  return dx;
}

// --- rotation, SwiGLU ---------------------------------------------------------------------------

// x [.., heads, width]; cos, sin [positions, pairs]; the leading size of x is batch * positions.
Tensor Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t heads,
              double direction) {
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
  const float *g = gate.data_ptr<float>(), *u = up.data_ptr<float>(),
              top = static_cast<float>(limit);
  float* out = y.data_ptr<float>();
  at::parallel_for(0, gate.numel(), 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float a = std::min(g[i], top), b = std::min(std::max(u[i], -top), top);
      out[i] = a / (1.0f + Exp(-a)) * b;
    }
  });
  return y;
}

std::vector<Tensor> SwiGluBackward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                   double limit) {
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

std::vector<Tensor> EngramBackward(const Tensor& dy, const Tensor& x, const Tensor& kv,
                                   const Tensor& weight, double eps) {
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
      float *to = dxp + (row * h + s) * d, *dkey = dkp + row * width + s * d,
            *dweight = sums + s * d;
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

// scores [.., queries, heads, keys] times `scale`; bias [n, keys], its row for query q is q % n;
// sink [heads].
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
  const Tensor *grads[2] = {&dnear, &dfar}, *probabilities[2] = {&near, &far},
               *outs[2] = {&near_out, &far_out};
  const int64_t rows = near.numel() / near.size(-1);
  const float factor = static_cast<float>(scale);
  const Tensor dsink = SumRows(rows, heads, [&](int64_t row, float* sums) {
    float dot = 0, mass = 0;
    for (int part = 0; part < 2; ++part) {
      const int64_t keys = probabilities[part]->size(-1);
      const float* g = grads[part]->data_ptr<float>() + row * keys;
      const float* p = probabilities[part]->data_ptr<float>() + row * keys;
#pragma omp simd reduction(+ : dot, mass)
      for (int64_t i = 0; i < keys; ++i) {
        dot += g[i] * p[i];
        mass += p[i];
      }
    }
    for (int part = 0; part < 2; ++part) {
      const int64_t keys = probabilities[part]->size(-1);
      const float* g = grads[part]->data_ptr<float>() + row * keys;
      const float* p = probabilities[part]->data_ptr<float>() + row * keys;
      float* to = outs[part]->data_ptr<float>() + row * keys;
      for (int64_t i = 0; i < keys; ++i) to[i] = factor * p[i] * (g[i] - dot);
    }
    sums[row % heads] -= (1 - mass) * dot;
  });
  return {near_out, far_out, dsink};
}

}  // namespace
}  // namespace train_tiny

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace train_tiny;
  m.def("rms_norm", &RmsNorm);
  m.def("rms_norm_backward", &RmsNormBackward);
  m.def("mean_square", &MeanSquare);
  m.def("mean_square_backward", &MeanSquareBackward);
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
