// The parallel residual streams: mixing coefficients, collapse, expansion, and the Engram gate.
#ifndef KURUMA_KERNELS_CPU_HYPER_INL_H_
#define KURUMA_KERNELS_CPU_HYPER_INL_H_

#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/shares-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int kMaxStreams = 8;

// Divides each of `count` lines of comb by its sum + eps. Line i holds comb[i * start + j * step].
KURUMA_INLINE void NormalizeLines(F32x8* comb, int count, int start, int step, F32x8 eps) {
  for (int i = 0; i < count; ++i) {
    F32x8* line = comb + i * start;
    F32x8 sum = line[0];
    for (int j = 1; j < count; ++j) sum = Add(sum, line[j * step]);
    const F32x8 inverse = Div(Set(1.0f), Add(sum, eps));
    for (int j = 0; j < count; ++j) line[j * step] = Mul(line[j * step], inverse);
  }
}

// Softmax of every row of comb, plus eps.
KURUMA_INLINE void SoftmaxRows(F32x8* comb, int h, F32x8 eps) {
  for (int i = 0; i < h; ++i) {
    F32x8* row = comb + i * h;
    F32x8 most = row[0];
    for (int j = 1; j < h; ++j) most = Max(most, row[j]);
    F32x8 sum = Zero();
    for (int j = 0; j < h; ++j) {
      row[j] = Exp(Sub(row[j], most));
      sum = Add(sum, row[j]);
    }
    for (int j = 0; j < h; ++j) row[j] = Add(Div(row[j], sum), eps);
  }
}

// Coefficients of eight rows at once, one row per lane: raw[i] -> result[i], i over
// pre | post | comb. Lanes do not see each other.
KURUMA_INLINE void SinkhornLanes(const HcSite& site, int h, F32x8* m) {
  const F32x8 eps = Set(static_cast<float>(site.eps));
  for (int i = 0; i < h * (2 + h); ++i) {
    const float scale = site.scale[i < h ? 0 : i < 2 * h ? 1 : 2];
    m[i] = Fma(m[i], Set(scale), Set(site.base[i]));
  }
  for (int i = 0; i < h; ++i) m[i] = Add(Sigmoid(m[i]), eps);
  for (int i = h; i < 2 * h; ++i) m[i] = Mul(Set(2.0f), Sigmoid(m[i]));
  F32x8* comb = m + 2 * h;
  SoftmaxRows(comb, h, eps);
  NormalizeLines(comb, h, 1, h, eps);
  for (int pass = 1; pass < site.iterations; ++pass) {
    NormalizeLines(comb, h, h, 1, eps);
    NormalizeLines(comb, h, 1, h, eps);
  }
}

// Up to eight rows: raw products [rows, h (2 + h)] to coefficients.
void MixRows(const HcSite& site, const ConstRows& streams, const ConstRows& raw, const HcMix& out) {
  const int h = site.streams;
  const int values = h * (2 + h);
  float lanes[kMaxStreams * (2 + kMaxStreams)][8] = {};
  for (int64_t r = 0; r < raw.rows; ++r) {
    const float* row = streams.row(r);
    const float scale = InverseRms(DotProduct(row, row, streams.cols), streams.cols, site.norm_eps);
    for (int i = 0; i < values; ++i) lanes[i][r] = raw.row(r)[i] * scale;
  }
  F32x8 m[kMaxStreams * (2 + kMaxStreams)];
  for (int i = 0; i < values; ++i) m[i] = Load(lanes[i]);
  if (h == 4) {
    SinkhornLanes(site, 4, m);
  } else {
    SinkhornLanes(site, h, m);
  }
  for (int i = 0; i < values; ++i) Store(lanes[i], m[i]);
  for (int64_t r = 0; r < raw.rows; ++r) {
    for (int i = 0; i < h; ++i) out.pre.row(r)[i] = lanes[i][r];
    for (int i = 0; i < h; ++i) out.post.row(r)[i] = lanes[h + i][r];
    for (int i = 0; i < h * h; ++i) out.comb.row(r)[i] = lanes[2 * h + i][r];
  }
}

void HcMixCoefficients(ThreadPool& pool, const HcSite& site, ConstRows streams, HcMix out) {
  KURUMA_CHECK(site.streams >= 1 && site.streams <= kMaxStreams);
  const int64_t n = streams.rows;
  const int64_t values = site.fn.rows;
  const Rows raw(ThreadScratch().logits.Get(n * values), n, values);
  MatMulTask task;
  task.weight = site.fn;
  task.x = streams;
  task.y = raw;
  MatMul(pool, {&task, 1});
  pool.ParallelFor((n + 7) / 8, 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * 8;
      const int64_t count = Lesser<int64_t>(8, n - first);
      MixRows(site, streams.Slice(first, count), raw.Slice(first, count),
              {out.pre.Slice(first, count), out.post.Slice(first, count),
               out.comb.Slice(first, count)});
    }
  });
}

void HcCollapse(ThreadPool& pool, ConstRows streams, ConstRows pre, bool round_bf16, Rows u) {
  const int64_t d = u.cols;
  pool.ParallelFor(u.rows, RowsPerPart(streams.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < d; c += 8) {
        const int64_t left = d - c;
        F32x8 sum = Zero();
        for (int64_t i = 0; i < pre.cols; ++i) {
          sum = Fma(Set(pre.row(r)[i]), LoadUpTo(streams.row(r) + i * d + c, left), sum);
        }
        StoreUpTo(u.row(r) + c, MaybeBf16(sum, round_bf16), left);
      }
    }
  });
}

// One row: y [d], streams [h, d]; of every eight columns all streams are read before any is
// written.
KURUMA_INLINE void ExpandStreams(const float* y, const float* post, const float* comb, bool round,
                                 const Rows& streams) {
  const int64_t h = streams.rows;
  for (int64_t c = 0; c < streams.cols; c += 8) {
    const int64_t left = streams.cols - c;
    const F32x8 value = LoadUpTo(y + c, left);
    F32x8 old[kMaxStreams];
    for (int64_t j = 0; j < h; ++j) old[j] = LoadUpTo(streams.row(j) + c, left);
    for (int64_t k = 0; k < h; ++k) {
      F32x8 sum = Mul(Set(post[k]), value);
      for (int64_t j = 0; j < h; ++j) sum = Fma(Set(comb[j * h + k]), old[j], sum);
      StoreUpTo(streams.row(k) + c, MaybeBf16(sum, round), left);
    }
  }
}

void HcExpand(ThreadPool& pool, ConstRows y, const HcMix& mix, bool round_bf16, Rows streams) {
  const int64_t h = mix.post.cols;
  KURUMA_CHECK(h <= kMaxStreams);
  pool.ParallelFor(y.rows, RowsPerPart(3 * streams.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* post = mix.post.row(r);
      const float* comb = mix.comb.row(r);
      if (h == 4) {
        ExpandStreams(y.row(r), post, comb, round_bf16, {streams.row(r), 4, y.cols});
      } else {
        ExpandStreams(y.row(r), post, comb, round_bf16, {streams.row(r), h, y.cols});
      }
    }
  });
}

// sum of x * weight * key.
float EngramDot(const float* x, const float* weight, const float* key, int64_t d) {
  F32x8 sum[2] = {Zero(), Zero()};
  for (int64_t c = 0; c < d; c += 8) {
    const int64_t left = d - c;
    const F32x8 scaled = Mul(LoadUpTo(x + c, left), LoadUpTo(weight + c, left));
    sum[c / 8 % 2] = Fma(scaled, LoadUpTo(key + c, left), sum[c / 8 % 2]);
  }
  return ReduceAdd(Add(sum[0], sum[1]));
}

void EngramRow(const EngramSpec& spec, const float* kv, int64_t d, float* streams, float* gates) {
  const float* value = kv + spec.streams * d;
  for (int i = 0; i < spec.streams; ++i) {
    float* x = streams + i * d;
    const float* key = kv + i * d;
    const float norms = InverseRms(DotProduct(x, x, d), d, spec.eps) *
                        InverseRms(DotProduct(key, key, d), d, spec.eps);
    const float dot = EngramDot(x, spec.weight + i * d, key, d);
    const float z = dot * norms * static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(d)));
    const float root = __builtin_sqrtf(Greater(__builtin_fabsf(z), 1e-6f));
    const float gate = Low(Sigmoid(Set(__builtin_copysignf(root, z))))[0];
    gates[i] = gate;
    for (int64_t c = 0; c < d; c += 8) {
      const F32x8 sum = Fma(Set(gate), LoadUpTo(value + c, d - c), LoadUpTo(x + c, d - c));
      StoreUpTo(x + c, MaybeBf16(sum, spec.round_bf16), d - c);
    }
  }
}

void Engram(ThreadPool& pool, const EngramSpec& spec, ConstRows kv, Rows streams, Rows gates) {
  const int64_t d = streams.cols / spec.streams;
  pool.ParallelFor(streams.rows, RowsPerPart(4 * streams.cols),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t r = begin; r < end; ++r) {
                       EngramRow(spec, kv.row(r), d, streams.row(r), gates.row(r));
                     }
                   });
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_HYPER_INL_H_
