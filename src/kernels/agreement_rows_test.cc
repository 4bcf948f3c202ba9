// All ops of every CPU table that are not plain products: agreement_test_util.h says what is
// compared.
#include <gtest/gtest.h>

#include "kernels/agreement_test_util.h"

namespace kuruma::kernels {
namespace {

// --------------------------------------------------------------------------------- ops on rows

TEST(RmsNorm, Agrees) {
  Rng rng(11);
  for (const int64_t d : {32, 100, 1280, 5120}) {
    for (const bool bf16 : {false, true}) {
      for (const float size : {1.0f, 1e-9f}) {  // 1e-9: squares near eps, far below usual epsilons
        const Floats x = Normal(rng, 40 * d, size);
        const auto weight = Bf16Codes(Normal(rng, d));
        Case c{"rms_norm", 40, d, {}, Relative(24, bf16, 0)};
        c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                    float* out) {
          ops.rms_norm(pool, {x.data() + begin * d, count, d}, weight.data(), {1e-20, bf16},
                       {out, count, d});
        };
        CheckCase(c);
      }
    }
  }
}

// Exact: the same codes and scales as the scalar definition, also for zeros, tiny and huge values.
TEST(QuantizeFp8, EqualsTheDefinition) {
  Rng rng(12);
  const int64_t d = 1280;
  Floats x;
  for (int row = 0; row < 64; ++row) {
    const Floats part = Normal(rng, d, std::ldexp(1.0f, static_cast<int>(rng() % 80) - 40));
    x.insert(x.end(), part.begin(), part.end());
  }
  for (size_t i = 0; i < x.size(); i += 7) x[i] = std::ldexp(x[i], -static_cast<int>(rng() % 30));
  for (size_t i = 0; i < x.size(); i += 5) x[i] = RoundBf16(x[i]);
  std::fill_n(x.begin(), 64, -0.0f);
  std::fill_n(x.begin() + 64, 32, 3e38f);
  std::fill_n(x.begin() + 96, 32, -1e-45f);
  Case c{"quantize_fp8", 64, d, {}, [](int64_t, int64_t, float) { return 0.0; }};
  c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
    ops.quantize_fp8(pool, {x.data() + begin * d, count, d}, {out, count, d});
  };
  CheckCase(c);
  ThreadPool pool(1);
  const Floats expected = RunCase(c, ReferenceOps(), pool);
  for (const OpTable* ops : RunnableCpuOps()) {  // signs of zeros too
    EXPECT_EQ(FirstDifference(expected, RunCase(c, *ops, pool)), -1) << ops->name;
  }
}

TEST(QuantizeFp8, RoundsEveryBf16ValueLikeTheDefinition) {
  ThreadPool pool(1);
  for (const OpTable* ops : RunnableCpuOps()) {
    Floats x(32 * 2048), y(x.size()), expected(x.size());
    for (size_t i = 0; i < x.size(); ++i) {  // one anchor of 448 keeps the group's scale at 1
      const auto code = static_cast<uint16_t>(i);
      x[i] = i % 32 == 0 ? 448.0f : Bf16ToFloat(code);
      if (!(std::fabs(x[i]) <= 448)) x[i] = 0;
    }
    ops->quantize_fp8(pool, {x.data(), 1, 32 * 2048}, {y.data(), 1, 32 * 2048});
    QuantizeDequantizeFp8(x, expected.data());
    EXPECT_EQ(FirstDifference(expected, y), -1) << ops->name;
  }
}

TEST(QuantizeFp8, KeepsNan) {
  ThreadPool pool(1);
  for (const OpTable* ops : RunnableCpuOps()) {
    Floats x(64, 1.0f);
    x[3] = NAN;
    x[40] = INFINITY;
    ops->quantize_fp8(pool, {x.data(), 1, 64}, {x.data(), 1, 64});
    EXPECT_TRUE(std::isnan(x[3])) << ops->name;
    EXPECT_FALSE(std::isfinite(x[40])) << ops->name;
  }
}

TEST(Rope, Agrees) {
  Rng rng(13);
  for (const int64_t pairs : {1, 4, 6, 32}) {
    for (const bool inverse : {false, true}) {
      for (const bool bf16 : {false, true}) {
        const int64_t heads = 5, dim = 96, rows = 23, d = heads * dim;
        const Floats x = ToBf16(Normal(rng, rows * d));
        Floats cos(rows * pairs), sin(rows * pairs);
        for (size_t i = 0; i < cos.size(); ++i) {
          const float angle = static_cast<float>(rng() % 10000);
          cos[i] = std::cos(angle);
          sin[i] = std::sin(angle);
        }
        // Two roundings; a difference of near equal products leaves one of their size (4 sigma).
        Case c{"rope", rows, d, {}, Relative(2, bf16, 8 * kUlp)};
        c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                    float* out) {
          std::copy_n(x.data() + begin * d, count * d, out);
          RopeSpec spec{heads,
                        dim,
                        {cos.data() + begin * pairs, count, pairs},
                        {sin.data() + begin * pairs, count, pairs},
                        inverse,
                        bf16};
          ops.rope(pool, spec, {out, count, d});
        };
        CheckCase(c);
      }
    }
  }
}

TEST(Swiglu, Agrees) {
  Rng rng(14);
  for (const int64_t d : {32, 77, 576}) {
    for (const bool weighted : {false, true}) {
      for (const bool bf16 : {false, true}) {
        const int64_t rows = 33;
        Floats gate = Normal(rng, rows * d, 6), up = Normal(rng, rows * d, 6);
        gate[0] = -200, gate[1] = 200, up[2] = -1e30f;
        const Floats weights = Normal(rng, rows);
        // exp to 2e-7 and four products; the smallest results are flushed with e^88.
        Case c{"swiglu", rows, d, {}, Relative(12, bf16, 1e-34)};
        c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                    float* out) {
          ops.swiglu(pool, {10, weighted ? weights.data() + begin : nullptr, bf16},
                     {gate.data() + begin * d, count, d}, {up.data() + begin * d, count, d},
                     {out, count, d});
        };
        CheckCase(c);
      }
    }
  }
}

TEST(SumExperts, Agrees) {
  Rng rng(15);
  for (const int64_t d : {32, 77, 1280}) {
    for (const bool bf16 : {false, true}) {
      const int64_t rows = 29, k = 6;
      const Floats parts = ToBf16(Normal(rng, rows * k * d)),
                   shared = ToBf16(Normal(rng, rows * d));
      std::vector<int32_t> index(rows * k);
      for (int32_t& i : index) i = static_cast<int32_t>(rng() % (rows * k));
      // Six additions of values up to about 5.
      Case c{"sum_experts", rows, d, {}, Relative(2, bf16, 60 * kUlp)};
      c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
        const ExpertSum spec{
            {index.data() + begin * k, count, k}, {shared.data() + begin * d, count, d}, bf16};
        ops.sum_experts(pool, spec, {parts.data(), rows * k, d}, {out, count, d});
      };
      CheckCase(c);
    }
  }
}

TEST(Compress, Agrees) {
  Rng rng(16);
  for (const int64_t ratio : {1, 2, 4}) {
    for (const bool bf16 : {false, true}) {
      const int64_t rows = 21, d = 132;
      const Floats kv = Normal(rng, rows * ratio * d), gate = Normal(rng, rows * ratio * d, 20);
      Case c{"compress", rows, d, {}, Relative(8, bf16, 16 * kUlp)};
      c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
        ops.compress(pool, {kv.data() + begin * ratio * d, count * ratio, d},
                     {gate.data() + begin * ratio * d, count * ratio, d}, bf16, {out, count, d});
      };
      CheckCase(c);
    }
  }
}

// ---------------------------------------------------------------------------- streams and routing

TEST(HcMix, Agrees) {
  Rng rng(21);
  for (const int streams : {2, 4}) {
    for (const int64_t d : {64, 1280}) {
      const int64_t rows = 19, k = streams * d, values = streams * (2 + streams);
      const OwnedMatrix fn = RandomMatrix(rng, {WeightFormat::kF32, values, k});
      const Floats x = ToBf16(Normal(rng, rows * k)), scale = {0.7f, 1.3f, 2.0f};
      const Floats base = Normal(rng, values);
      HcSite site{fn.view, scale.data(), base.data(), streams};
      // Logits carry the error of a chain of K / 8; 20 Sinkhorn rounds contract it.
      Case c{"hc_mix", rows, values, {}, Relative(40, false, 40 * kUlp)};
      c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
        const HcMix mix{{out, count, streams, values},
                        {out + streams, count, streams, values},
                        {out + 2 * streams, count, streams * streams, values}};
        ops.hc_mix(pool, site, {x.data() + begin * k, count, k}, mix);
      };
      CheckCase(c);
    }
  }
}

TEST(HcCollapseAndExpand, Agree) {
  Rng rng(22);
  for (const int64_t h : {2, 4}) {
    for (const int64_t d : {40, 77, 1280}) {
      for (const bool bf16 : {false, true}) {
        const int64_t rows = 9;
        const Floats x = ToBf16(Normal(rng, rows * h * d)), y = ToBf16(Normal(rng, rows * d));
        Floats post = Normal(rng, rows * h), comb = Normal(rng, rows * h * h);
        Case collapse{"hc_collapse", rows, d, {}, Relative(2, bf16, 40 * kUlp)};
        collapse.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                           float* out) {
          ops.hc_collapse(pool, {x.data() + begin * h * d, count, h * d},
                          {post.data() + begin * h, count, h}, bf16, {out, count, d});
        };
        CheckCase(collapse);
        Case expand{"hc_expand", rows, h * d, {}, Relative(2, bf16, 60 * kUlp)};
        expand.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                         float* out) {
          std::copy_n(x.data() + begin * h * d, count * h * d, out);
          const HcMix mix{
              {}, {post.data() + begin * h, count, h}, {comb.data() + begin * h * h, count, h * h}};
          ops.hc_expand(pool, {y.data() + begin * d, count, d}, mix, bf16, {out, count, h * d});
        };
        CheckCase(expand);
      }
    }
  }
}

TEST(Engram, Agrees) {
  Rng rng(23);
  for (const int64_t d : {64, 77, 1280}) {
    for (const bool bf16 : {false, true}) {
      const int64_t rows = 11, h = 4, cols = h * d + h;
      const Floats x = ToBf16(Normal(rng, rows * h * d));
      const Floats kv = ToBf16(Normal(rng, rows * (h + 1) * d)), weight = Normal(rng, h * d);
      // sqrt(|z|) multiplies the error of a small z; gates follow within 1e-5.
      Case c{"engram", rows, cols, {}, Relative(4, bf16, 5e-5)};
      c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
        for (int64_t r = 0; r < count; ++r) {
          std::copy_n(x.data() + (begin + r) * h * d, h * d, out + r * cols);
        }
        ops.engram(pool, {weight.data(), h, 1e-20, bf16},
                   {kv.data() + begin * (h + 1) * d, count, (h + 1) * d}, {out, count, h * d, cols},
                   {out + h * d, count, h, cols});
      };
      CheckCase(c);
    }
  }
}

// Output per row: ids, weights, biased scores. Seeds leave no two scores within rounding.
TEST(Route, Agrees) {
  Rng rng(24);
  for (const int64_t experts : {5, 64, 384}) {
    for (const int64_t d : {64, 1280}) {
      const int64_t rows = 25, cols = 2 * 3 + experts;
      const OwnedMatrix gate = RandomMatrix(rng, {WeightFormat::kBf16, experts, d});
      const Floats u = ToBf16(Normal(rng, rows * d, 3)), bias = Normal(rng, experts, 0.1f);
      Case c{"route", rows, cols, {}, Relative(32, false, 32 * kUlp)};
      c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
        std::vector<int32_t> ids(count * 3);
        RouterSpec spec{gate.view, bias.data(), 3, 1.5f};
        ops.route(
            pool, spec, {u.data() + begin * d, count, d},
            {{ids.data(), count, 3}, {out + 3, count, 3, cols}, {out + 6, count, experts, cols}});
        for (int64_t i = 0; i < count * 3; ++i) {
          out[i / 3 * cols + i % 3] = static_cast<float>(ids[i]);
        }
      };
      CheckCase(c);
    }
  }
}

TEST(Route, TiesGoToTheLowerExpert) {
  const int64_t experts = 9, d = 32;
  const std::vector<uint16_t> gate(experts * d, FloatToBf16(0.5f));
  const Floats u(d, 1.0f);
  Floats bias(experts, 0.0f);
  bias[7] = bias[4] = 1;
  Matrix view;
  view.format = WeightFormat::kBf16;
  view.data = reinterpret_cast<const std::byte*>(gate.data());
  view.rows = experts;
  view.cols = d;
  for (const OpTable* ops : RunnableCpuOps()) {
    ThreadPool pool(1);
    std::vector<int32_t> ids(4);
    Floats weights(4);
    ops->route(pool, {view, bias.data(), 4, 1.0f}, {u.data(), 1, d},
               {{ids.data(), 1, 4}, {weights.data(), 1, 4}, {}});
    EXPECT_EQ(ids, (std::vector<int32_t>{4, 7, 0, 1})) << ops->name;
    EXPECT_FLOAT_EQ(weights[0], 0.25f);
  }
}

// -------------------------------------------------------------------------------- cached rows

// Rows of a cache in blocks of 8 rows behind a header, as a sequence's block table sees them.
struct Cache {
  std::vector<std::vector<std::byte>> memory;
  std::vector<const std::byte*> blocks;
  PagedRows rows;
};

Cache RandomCache(Rng& rng, RowFormat format, int64_t count, int64_t dim, float scale) {
  Cache cache;
  cache.rows = {8, 24, RowBytes(format, dim), format};
  for (int64_t b = 0; b < (count + 7) / 8; ++b) {
    std::vector<std::byte> block(24 + 8 * cache.rows.row_bytes);
    for (int64_t r = 0; r < 8; ++r) {
      StoreRow(format, Fp4Division::kReciprocal, ToBf16(Normal(rng, dim, scale)),
               block.data() + 24 + r * cache.rows.row_bytes);
    }
    cache.memory.push_back(std::move(block));
    cache.blocks.push_back(cache.memory.back().data());
  }
  return cache;
}

struct AttentionShape {
  int64_t heads, dim, window, picks;
  RowFormat window_format, pick_format;
  bool bf16;
};

void CheckAttention(Rng& rng, const AttentionShape& s, int64_t rows) {
  const Cache window = RandomCache(rng, s.window_format, s.window + rows, s.dim, 1);
  const Cache picked = RandomCache(rng, s.pick_format, s.picks * 2 + 1, s.dim, 1);
  const Floats q = ToBf16(Normal(rng, rows * s.heads * s.dim, 2));
  Floats sink = Normal(rng, s.heads);
  sink[0] = -1e30f;
  std::vector<std::vector<const std::byte*>> windows(rows);
  std::vector<std::vector<int32_t>> picks(rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < s.window; ++j) {
      windows[r].push_back(window.rows.row(window.blocks.data(), r + j));
    }
    for (int32_t j = 0; j < s.picks; ++j) {
      picks[r].push_back(j * 2 + static_cast<int32_t>(rng() % 2));
    }
  }
  const AttentionSpec spec{s.heads, s.dim, sink.data(), s.window_format, picked.rows, s.bf16};
  // Values are of size 1 to 4. A probability on a bfloat16 boundary may round the other way, which
  // moves a result by 2^-8 of that value's share; without rounding float32 sums remain.
  const double floor = s.bf16 ? 2e-3 : 4e-6;
  Case c{"attention " + std::to_string(s.window) + "+" + std::to_string(s.picks),
         rows,
         s.heads * s.dim,
         {},
         Relative(4, s.bf16, floor)};
  c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
    std::vector<AttentionQuery> queries;
    for (int64_t r = begin; r < begin + count; ++r) {
      queries.push_back({q.data() + r * c.cols, out + (r - begin) * c.cols, windows[r], picks[r],
                         picked.blocks.data()});
    }
    ops.attention(pool, spec, queries);
  };
  CheckCase(c);
}

TEST(Attention, Agrees) {
  Rng rng(31);
  constexpr RowFormat kF32 = RowFormat::kF32, kFp8 = RowFormat::kFp8, kFp4 = RowFormat::kFp4E4m3;
  for (const bool bf16 : {false, true}) {
    CheckAttention(rng, {3, 32, 1, 0, kF32, kF32, bf16}, 5);
    CheckAttention(rng, {5, 64, 0, 7, kF32, kF32, bf16}, 2);
    CheckAttention(rng, {1, 96, 13, 20, kFp8, kFp4, bf16}, 9);
    CheckAttention(rng, {7, 512, 128, 0, kFp8, kFp4, bf16}, 6);
    CheckAttention(rng, {16, 512, 128, 512, kFp8, kFp4, bf16}, 3);
    CheckAttention(rng, {2, 64, 0, 0, kFp8, kFp4, bf16}, 3);
  }
}

// The denominator sums probabilities as they are, the numerator sums them rounded: with many equal
// ones the difference decides the rounding of the result.
TEST(Attention, DividesByUnroundedProbabilities) {
  const int64_t dim = 32, count = 24;
  Floats rows(count * dim), q(dim), sink = {-1e30f};
  std::vector<const std::byte*> window;
  for (int64_t j = 0; j < count; ++j) {
    if (j > 0) rows[j * dim] = rows[j * dim + 1] = 1;  // row 0 is the peak, with value 0
    window.push_back(reinterpret_cast<const std::byte*>(rows.data() + j * dim));
  }
  const AttentionSpec spec{1, dim, sink.data(), RowFormat::kF32, {}, true};
  ThreadPool pool(1);
  for (const OpTable* ops : RunnableCpuOps()) {
    for (int step = 1; step <= 200; ++step) {
      q[0] = -0.1f * static_cast<float>(step);
      Floats expected(dim), actual(dim);
      const std::vector<AttentionQuery> reference = {{q.data(), expected.data(), window, {}, {}}};
      const std::vector<AttentionQuery> query = {{q.data(), actual.data(), window, {}, {}}};
      ReferenceOps().attention(pool, spec, reference);
      ops->attention(pool, spec, query);
      EXPECT_EQ(actual[1], expected[1]) << ops->name << " step " << step;
    }
  }
}

struct IndexShape {
  int64_t heads, dim, visible;
  RowFormat format;
  bool single_round;
};

void CheckIndex(Rng& rng, const IndexShape& s) {
  const int64_t rows = 11;
  const Cache keys = RandomCache(rng, s.format, s.visible, s.dim, 1);
  Floats q(rows * s.heads * s.dim);
  std::vector<std::byte> packed(RowBytes(RowFormat::kFp4E8m0, s.dim));
  for (int64_t i = 0; i < rows * s.heads; ++i) {
    const Floats x = ToBf16(Normal(rng, s.dim));
    StoreRow(RowFormat::kFp4E8m0, Fp4Division::kReciprocal, x, packed.data());
    LoadRow(RowFormat::kFp4E8m0, packed.data(), s.dim, q.data() + i * s.dim);
  }
  const Floats weights = ToBf16(Normal(rng, rows * s.heads, 0.1f));
  const IndexSpec spec{s.heads, s.dim, keys.rows, s.single_round, true};
  // Dots of FP4 values are exact; the sum over heads (size up to about 10) has one rounding each.
  Case c{"index_scores " + std::to_string(s.visible), rows, s.visible, {}, Relative(4, true, 2e-5)};
  c.run = [&](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count, float* out) {
    std::fill_n(out, count * s.visible, 0.0f);
    std::vector<IndexQuery> queries;
    for (int64_t r = begin; r < begin + count; ++r) {  // later rows see more, as in a prompt
      queries.push_back({q.data() + r * s.heads * s.dim, weights.data() + r * s.heads,
                         out + (r - begin) * s.visible,
                         std::max<int64_t>(0, s.visible - rows + 1 + r), keys.blocks.data()});
    }
    ops.index_scores(pool, spec, queries);
  };
  CheckCase(c);
}

TEST(IndexScores, Agrees) {
  Rng rng(32);
  for (const bool single_round : {true, false}) {
    CheckIndex(rng, {1, 32, 3, RowFormat::kFp4E8m0, single_round});
    CheckIndex(rng, {3, 64, 77, RowFormat::kFp4E8m0, single_round});
    CheckIndex(rng, {8, 128, 700, RowFormat::kFp4E8m0, single_round});
    CheckIndex(rng, {4, 128, 100, RowFormat::kF32, single_round});
  }
}

}  // namespace
}  // namespace kuruma::kernels
