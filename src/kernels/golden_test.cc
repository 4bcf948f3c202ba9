// Formats and single operations against the oracle's kernel vectors (tests/golden/README.md).
// Formats, roundings, quantisers and selections must be exact; sums and transcendental functions
// agree to 1e-6 relative before rounding and to one bfloat16 unit after it.
#include "tests/support/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "kernels/select.h"
#include "model/engram_hash.h"
#include "model/rope.h"

namespace kuruma::kernels {
namespace {

using testing::GoldenFile;

const GoldenFile& Golden() {
  static const GoldenFile file("kernels/kernels.safetensors");
  return file;
}

std::vector<float> F(const std::string& name) { return Golden().Floats(name); }
std::vector<int64_t> I(const std::string& name) { return Golden().Integers(name); }
int64_t Dim(const std::string& name, int axis) { return Golden().Shape(name)[axis]; }

std::vector<uint8_t> Bytes(const std::string& name) {
  const auto wide = I(name);
  return {wide.begin(), wide.end()};
}

std::vector<uint16_t> Bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float v : values) bits.push_back(FloatToBf16(v));
  return bits;
}

ConstRows View(const std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols};
}
Rows View(std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols};
}

void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected,
                    const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << what << " at " << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << what << " at " << i << ": " << actual[i] << " vs " << expected[i];
    }
  }
}

// Relative to the largest magnitude of the row the element belongs to: sums cancel.
void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected, int64_t cols,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t begin = 0; begin < actual.size(); begin += cols) {
    double size = 0;
    for (int64_t c = 0; c < cols; ++c)
      size = std::max<double>(size, std::fabs(expected[begin + c]));
    for (int64_t c = 0; c < cols; ++c) {
      EXPECT_NEAR(actual[begin + c], expected[begin + c], tolerance * size)
          << what << " row " << begin / cols << " column " << c;
    }
  }
}

// At most one unit in the last place of bfloat16, or tiny beside the row.
void ExpectBf16Close(const std::vector<float>& actual, const std::vector<float>& expected,
                     int64_t cols, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const int a = static_cast<int16_t>(FloatToBf16(actual[i]));
    const int e = static_cast<int16_t>(FloatToBf16(expected[i]));
    if (std::abs(a - e) <= 1) continue;
    double size = 0;
    const size_t begin = i / cols * cols;
    for (int64_t c = 0; c < cols; ++c)
      size = std::max<double>(size, std::fabs(expected[begin + c]));
    EXPECT_NEAR(actual[i], expected[i], 1e-6 * size) << what << " at " << i;
  }
}

// ------------------------------------------------------------------------------------- formats

TEST(GoldenKernels, FormatTables) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    ExpectSameBits({E4m3ToFloat(byte)}, {F("e4m3_table.values")[code]}, "e4m3");
    ExpectSameBits({E8m0ToFloat(byte)}, {F("e8m0_table.values")[code]}, "e8m0");
  }
  ExpectSameBits({kE2m1Values.begin(), kE2m1Values.end()}, F("e2m1_table.values"), "e2m1");
}

std::vector<float> Dequantize(const Matrix& w) {
  std::vector<float> values(w.rows * w.cols);
  for (int64_t r = 0; r < w.rows; ++r) DequantizeRow(w, r, values.data() + r * w.cols);
  return values;
}

// A view of golden weight bytes; FP8 in 32x32 tiles, FP4 in groups of 32 along a row.
Matrix Packed(WeightFormat format, const std::vector<uint8_t>& bytes,
              const std::vector<uint8_t>& scales, int64_t rows) {
  const bool fp4 = format == WeightFormat::kFp4;
  const int64_t cols = static_cast<int64_t>(bytes.size()) / rows * (fp4 ? 2 : 1);
  return {.format = format,
          .data = reinterpret_cast<const std::byte*>(bytes.data()),
          .scales = scales.data(),
          .rows = rows,
          .cols = cols,
          .block_rows = fp4 ? 1 : 32,
          .block_cols = 32,
          .scale_stride = (cols + 31) / 32};
}

TEST(GoldenKernels, PackedMatrices) {
  for (const std::string name : {"fp8_block", "fp8_block_ragged"}) {
    const auto bytes = Bytes(name + ".bytes"), scales = Bytes(name + ".scale");
    const Matrix w = Packed(WeightFormat::kFp8, bytes, scales, Dim(name + ".bytes", 0));
    ExpectSameBits(Dequantize(w), F(name + ".values"), name);
    const auto values = F(name + ".values");
    ExpectSameBits(Dequantize(w.Slice(33, 7)),
                   {values.begin() + 33 * w.cols, values.begin() + 40 * w.cols}, name + " slice");
  }
  const auto bytes = Bytes("fp4_rows.bytes"), scales = Bytes("fp4_rows.scale");
  ExpectSameBits(Dequantize(Packed(WeightFormat::kFp4, bytes, scales, 8)), F("fp4_rows.values"),
                 "fp4_rows");
}

TEST(GoldenKernels, BytesOfTheReleasedCheckpoint) {
  const auto wkv = Bytes("released_bytes.wkv_bytes"), wkv_scale = Bytes("released_bytes.wkv_scale");
  ExpectSameBits(Dequantize(Packed(WeightFormat::kFp8, wkv, wkv_scale, 1)),
                 F("released_bytes.wkv_values"), "wkv");
  const auto w1 = Bytes("released_bytes.w1_bytes"), w1_scale = Bytes("released_bytes.w1_scale");
  ExpectSameBits(Dequantize(Packed(WeightFormat::kFp4, w1, w1_scale, 1)),
                 F("released_bytes.w1_values"), "w1");
}

TEST(GoldenKernels, Roundings) {
  std::vector<float> rounded;
  for (float x : F("bf16_round.x")) rounded.push_back(RoundBf16(x));
  ExpectSameBits(rounded, F("bf16_round.values"), "bf16");
  rounded.clear();
  for (float x : F("e4m3_round.x")) rounded.push_back(E4m3ToFloat(FloatToE4m3(x)));
  ExpectSameBits(rounded, F("e4m3_round.values"), "e4m3");
  const auto codes = I("e2m1_round.codes");
  const auto x = F("e2m1_round.x");
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(FloatToE2m1(x[i]), codes[i]) << x[i];
}

// Every float32 pattern near every code and midpoint rounds to the nearest code.
TEST(Formats, E4m3RoundsToNearestEverywhere) {
  for (int code = 0; code < 126; ++code) {
    const float low = E4m3ToFloat(static_cast<uint8_t>(code));
    const float high = E4m3ToFloat(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;  // exact
    EXPECT_EQ(FloatToE4m3(low), code);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 1e9f)), code + 1);
    EXPECT_EQ(FloatToE4m3(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(FloatToE4m3(-high), code + 1 + 128);
  }
  EXPECT_TRUE(std::isnan(E4m3ToFloat(FloatToE4m3(std::nanf("")))));
}

void CheckStoredRows(const std::string& name, RowFormat format, Fp4Division division) {
  const auto x = F(name + ".x");
  const int64_t dim = Dim(name + ".x", 1);
  std::vector<float> loaded(x.size());
  std::vector<std::byte> row(RowBytes(format, dim));
  for (size_t begin = 0; begin < x.size(); begin += dim) {
    StoreRow(format, division, {x.data() + begin, static_cast<size_t>(dim)}, row.data());
    LoadRow(format, row.data(), dim, loaded.data() + begin);
  }
  ExpectSameBits(loaded, F(name + ".values"), name);
}

TEST(GoldenKernels, StoredRows) {
  CheckStoredRows("fp8_activation", RowFormat::kFp8, Fp4Division::kReciprocal);
  CheckStoredRows("fp4_index", RowFormat::kFp4E8m0, Fp4Division::kReciprocal);
  CheckStoredRows("fp4_cache", RowFormat::kFp4E4m3, Fp4Division::kReciprocal);
  CheckStoredRows("fp4_cache_division", RowFormat::kFp4E4m3, Fp4Division::kTrue);
}

TEST(GoldenKernels, EngramHash) {
  const std::vector<int> layers{1, 14};
  const auto primes = model::EngramPrimes(2, 4, 8, 16000000);
  const auto multipliers = model::EngramMultipliers(layers, 4, 99092);
  const auto classes = I("engram_hash.classes"), rows = I("engram_hash.rows");
  for (int layer = 0; layer < 2; ++layer) {
    for (int i = 0; i < 24; ++i)
      EXPECT_EQ(primes[layer][i], I("engram_hash.primes")[layer * 24 + i]);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(multipliers[layer][i], I("engram_hash.multipliers")[layer * 4 + i]);
    }
    model::EngramHash hash{.heads = 8,
                           .pad_class = 5,
                           .primes = primes[layer],
                           .offsets = {},
                           .multipliers = multipliers[layer]};
    int64_t offset = 0;
    for (int64_t prime : hash.primes) {
      hash.offsets.push_back(offset);
      offset += prime;
    }
    for (int p = 0; p < 12; ++p) {
      std::vector<int32_t> newest_first;
      for (int q = p; q >= 0 && q > p - 4; --q) newest_first.push_back(classes[q]);
      std::vector<int64_t> found(24);
      hash.Rows(newest_first, found.data());
      for (int k = 0; k < 24; ++k) EXPECT_EQ(found[k], rows[(layer * 12 + p) * 24 + k]);
    }
  }
}

TEST(GoldenKernels, RopeTables) {
  const model::RopeScaling yarn{16, 32, 1, 65536};
  const auto window = model::RopeFrequencies(64, 10000, nullptr);
  const auto compressed = model::RopeFrequencies(64, 160000, &yarn);
  ExpectSameBits(window, F("rope_tables.freq_window"), "window frequencies");
  ExpectSameBits(compressed, F("rope_tables.freq_compress"), "compressed frequencies");
  const auto positions = I("rope_tables.positions");
  for (const auto& [kind, frequencies] :
       {std::pair{"window", &window}, std::pair{"compress", &compressed}}) {
    std::vector<float> cos(positions.size() * 32), sin(positions.size() * 32);
    model::RopeAngles(positions, *frequencies, View(cos, 32), View(sin, 32));
    ExpectSameBits(cos, F(fmt::format("rope_tables.cos_{}", kind)), "cos");
    ExpectSameBits(sin, F(fmt::format("rope_tables.sin_{}", kind)), "sin");
  }
}

TEST(GoldenKernels, Selection) {
  const auto scores = F("candidate_pool.scores");
  const CandidatePool pool = BuildCandidatePool(scores, 8, 2);
  std::vector<int64_t> inside(scores.size());
  for (int32_t block : pool.blocks) {
    for (size_t j = block * 8; j < std::min<size_t>(scores.size(), block * 8 + 8); ++j)
      inside[j] = 1;
  }
  EXPECT_EQ(inside, I("candidate_pool.pool"));
  const auto widen = [](const std::vector<int32_t>& ids) {
    return std::vector<int64_t>(ids.begin(), ids.end());
  };
  EXPECT_EQ(widen(SelectTopK(pool.Mask(scores), 6)), I("candidate_pool.picks"));
  EXPECT_EQ(widen(SelectTopK(scores, 6)), I("candidate_pool.picks_without_pool"));
  EXPECT_EQ(SelectTopK(std::vector<float>{1, 3, 3, 2, 3}, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(BuildCandidatePool({}, 8, 2).blocks.empty());
}

// ------------------------------------------------------------- operations of every implementation

std::vector<const OpTable*> Tables() {
  std::vector<const OpTable*> tables = RunnableCpuOps();
  tables.push_back(&ReferenceOps());
  return tables;
}

class GoldenOps : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops_ = *GetParam();
  ThreadPool pool_{2};
};

TEST_P(GoldenOps, QuantizedProducts) {
  for (const auto& [name, format] :
       {std::pair<std::string, WeightFormat>{"fp8_linear", WeightFormat::kFp8},
        {"fp4_linear", WeightFormat::kFp4}}) {
    const auto bytes = Bytes(name + ".weight"), scales = Bytes(name + ".scale");
    const Matrix w = Packed(format, bytes, scales, Dim(name + ".weight", 0));
    const auto x = F(name + ".x");
    std::vector<float> quantized(x.size()), y(F(name + ".y").size());
    ops_.quantize_fp8(pool_, View(x, w.cols), View(quantized, w.cols));
    const MatMulTask task{w, View(quantized, w.cols), View(y, w.rows), true};
    ops_.matmul(pool_, {&task, 1});
    ExpectBf16Close(y, F(name + ".y"), w.rows, name);
    const MatMulTask plain{w, View(x, w.cols), View(y, w.rows), false};
    ops_.matmul(pool_, {&plain, 1});
    ExpectClose(y, F(name + ".y_plain"), w.rows, 1e-6, name + " plain");
  }
}

TEST_P(GoldenOps, ActivationQuantisationIsExact) {
  const auto x = F("fp8_activation.x");
  std::vector<float> y(x.size());
  ops_.quantize_fp8(pool_, View(x, 64), View(y, 64));
  ExpectSameBits(y, F("fp8_activation.values"), "quantize_fp8");
}

TEST_P(GoldenOps, RmsNorm) {
  const auto x = F("rms_norm.x");
  const auto weight = Bf16(F("rms_norm.weight"));
  std::vector<float> y(x.size());
  ops_.rms_norm(pool_, View(x, 64), weight.data(), {1e-20, false}, View(y, 64));
  ExpectClose(y, F("rms_norm.y"), 64, 1e-6, "rms_norm");
  ops_.rms_norm(pool_, View(x, 64), weight.data(), {1e-20, true}, View(y, 64));
  ExpectBf16Close(y, F("rms_norm.y_bf16"), 64, "rms_norm bf16");
}

TEST_P(GoldenOps, RopeBothWays) {
  const auto cos = F("rope_tables.cos_compress"), sin = F("rope_tables.sin_compress");
  for (bool inverse : {false, true}) {
    auto x = F("rope_apply.x");
    ops_.rope(pool_,
              {.heads = 3,
               .head_dim = 96,
               .cos = View(cos, 32),
               .sin = View(sin, 32),
               .inverse = inverse,
               .round_bf16 = false},
              View(x, 288));
    ExpectClose(x, F(inverse ? "rope_apply.y_inverse" : "rope_apply.y"), 96, 1e-6, "rope");
  }
}

// The Sinkhorn split is fed through an identity `fn`, so its logits are the golden ones.
TEST_P(GoldenOps, HyperConnections) {
  const auto raw = F("sinkhorn.raw"), scale = F("sinkhorn.scale"), base = F("sinkhorn.base");
  const int64_t n = Dim("sinkhorn.raw", 0);
  const int64_t width = 4 * 32;  // more columns than logits; the rest is zero
  std::vector<float> fn(24 * width), pre(n * 4), post(n * 4), comb(n * 16);
  for (int i = 0; i < 24; ++i) fn[i * width + i] = 1;
  for (int64_t r = 0; r < n; ++r) {
    // The site divides by the root mean square of its input: one more column brings it to 1.
    std::vector<float> x(width);
    double squares = 0;
    for (int i = 0; i < 24; ++i) squares += static_cast<double>(raw[r * 24 + i]) * raw[r * 24 + i];
    float shrink = 1;
    while (squares * shrink * shrink >= width) shrink /= 2;  // exact scaling
    for (int i = 0; i < 24; ++i) x[i] = raw[r * 24 + i] * shrink;
    x[24] = static_cast<float>(std::sqrt(width - squares * shrink * shrink));
    std::vector<float> wide_scale{scale[0] / shrink, scale[1] / shrink, scale[2] / shrink};
    const HcSite site{.fn = {.format = WeightFormat::kF32,
                             .data = reinterpret_cast<const std::byte*>(fn.data()),
                             .rows = 24,
                             .cols = width},
                      .scale = wide_scale.data(),
                      .base = base.data(),
                      .streams = 4,
                      .iterations = 20,
                      .norm_eps = 1e-20,
                      .eps = 1e-6};
    ops_.hc_mix(pool_, site, {x.data(), 1, width},
                {Rows(pre.data() + r * 4, 1, 4), Rows(post.data() + r * 4, 1, 4),
                 Rows(comb.data() + r * 16, 1, 16)});
  }
  ExpectClose(pre, F("sinkhorn.pre"), 4, 1e-5, "pre");
  ExpectClose(post, F("sinkhorn.post"), 4, 1e-5, "post");
  ExpectClose(comb, F("sinkhorn.comb"), 16, 1e-5, "comb");

  pre = F("sinkhorn.pre"), post = F("sinkhorn.post"), comb = F("sinkhorn.comb");
  auto streams = F("sinkhorn.streams");
  const auto y = F("sinkhorn.y");
  std::vector<float> collapsed(y.size());
  ops_.hc_collapse(pool_, View(streams, 128), View(pre, 4), true, View(collapsed, 32));
  ExpectBf16Close(collapsed, F("sinkhorn.collapsed"), 32, "collapse");
  const HcMix mix{View(pre, 4), View(post, 4), View(comb, 16)};
  ops_.hc_expand(pool_, View(y, 32), mix, true, View(streams, 128));
  ExpectBf16Close(streams, F("sinkhorn.expanded"), 32, "expand");
}

TEST_P(GoldenOps, Router) {
  for (int k : {2, 4}) {
    const std::string name = fmt::format("router_top{}", k);
    const auto gate = Bf16(F(name + ".gate"));
    const auto u = F(name + ".u"), bias = F(name + ".bias");
    const RouterSpec spec{.gate = {.format = WeightFormat::kBf16,
                                   .data = reinterpret_cast<const std::byte*>(gate.data()),
                                   .rows = 12,
                                   .cols = 32},
                          .bias = bias.data(),
                          .top_k = k,
                          .scale = 1.5f};
    std::vector<int32_t> ids(8 * k);
    std::vector<float> weights(8 * k), biased(8 * 12);
    ops_.route(pool_, spec, View(u, 32), {{ids.data(), 8, k}, View(weights, k), View(biased, 12)});
    EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.end()), I(name + ".ids")) << ops_.name;
    ExpectClose(weights, F(name + ".weights"), k, 1e-6, name);
    ExpectClose(biased, F(name + ".biased_scores"), 12, 1e-6, name);
  }
}

TEST_P(GoldenOps, Swiglu) {
  const auto gate = F("swiglu.gate"), up = F("swiglu.up");
  std::vector<float> y(gate.size());
  ops_.swiglu(pool_, {.limit = 10, .weights = nullptr, .round_bf16 = false}, View(gate, 8),
              View(up, 8), View(y, 8));
  const auto expected = F("swiglu.y");
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(y[i], expected[i], 1e-6 * std::fabs(expected[i])) << "column " << i;
  }
}

TEST_P(GoldenOps, CompressPair) {
  const auto kv = F("compress_pair.kv"), gate = F("compress_pair.gate");
  std::vector<float> y(F("compress_pair.y").size());
  ops_.compress(pool_, View(kv, 32), View(gate, 32), true, View(y, 32));
  ExpectBf16Close(y, F("compress_pair.y"), 32, "compress");
}

TEST_P(GoldenOps, SparseAttention) {
  for (const std::string name : {"many", "one", "none"}) {
    const std::string group = "sparse_attention_" + name;
    const auto q = F(group + ".q"), rows = F(group + ".rows"), sink = F(group + ".sink");
    std::vector<const std::byte*> window;
    for (size_t i = 0; i < rows.size(); i += 64) {
      window.push_back(reinterpret_cast<const std::byte*>(rows.data() + i));
    }
    std::vector<float> out(q.size());
    const AttentionQuery query{
        .q = q.data(), .out = out.data(), .window = window, .picks = {}, .blocks = nullptr};
    AttentionSpec spec{.heads = 4,
                       .head_dim = 64,
                       .sink = sink.data(),
                       .window_format = RowFormat::kF32,
                       .compressed = {},
                       .round_bf16 = false};
    ops_.attention(pool_, spec, {&query, 1});
    ExpectClose(out, F(group + ".y_plain"), 64, 1e-6, group);
    spec.round_bf16 = true;
    ops_.attention(pool_, spec, {&query, 1});
    std::vector<float> expected;
    for (float v : F(group + ".y")) expected.push_back(RoundBf16(v));
    // A probability on a rounding edge moves the whole sum by up to 2^-9 of its own share.
    ExpectClose(out, expected, 64, 4e-3, group + " bf16");
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenOps, ::testing::ValuesIn(Tables()), [](const auto& info) {
  std::string name = info.param->name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace kuruma::kernels
