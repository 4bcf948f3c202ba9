#include "bench_checkpoint/fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "kernels/formats.h"

namespace kuruma::bench_checkpoint {
namespace {

using Kind = Recipe::Kind;

constexpr int kQuantiles = 4096;  // of the normal distribution; an element draws one of them
constexpr int kFp4Quantiles = 256;

// Word i of the stream `key`: SplitMix64 (Steele, Lea, Flood 2014) with the state as a counter.
uint64_t Word(uint64_t key, int64_t i) {
  uint64_t z = key + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Calls f(lane) with 16 random bits for each of elements [first, first + count); first % 4 == 0.
template <typename T, typename F>
void FillLanes(uint64_t key, int64_t first, int64_t count, T* out, F f) {
  int64_t done = 0;
  int64_t word = first / 4;
  for (; done + 4 <= count; done += 4, ++word) {
    const uint64_t bits = Word(key, word);
    for (int lane = 0; lane < 4; ++lane) {
      out[done + lane] = f(static_cast<uint32_t>(bits >> (16 * lane) & 0xFFFF));
    }
  }
  for (int64_t lane = 0; done < count; ++done, ++lane) {
    out[done] = f(static_cast<uint32_t>(Word(key, word) >> (16 * lane) & 0xFFFF));
  }
}

// x with P(X < x) = p, by bisection.
double NormalQuantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The token that leans towards `token`: one cycle through the whole vocabulary.
int64_t Predecessor(int64_t token, int64_t vocab) {
  int64_t step = vocab * 618 / 1000 | 1;
  while (std::gcd(step, vocab) != 1) step += 2;
  return (token + vocab - step) % vocab;
}

}  // namespace

Filler::Filler(uint64_t seed) : seed_(Word(seed, 1)), normal_(kQuantiles) {
  for (int i = 0; i < kQuantiles; ++i) {
    normal_[i] = static_cast<float>(NormalQuantile((i + 0.5) / kQuantiles));
  }
}

uint64_t Filler::Key(const std::string& name) const {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return Word(hash ^ seed_, 1);
}

const std::vector<uint8_t>& Filler::CodeTable(Dtype dtype, double deviation) {
  std::vector<uint8_t>& table = code_tables_[{dtype, deviation}];
  if (!table.empty()) return table;
  const int size = dtype == Dtype::kFp4 ? kFp4Quantiles : kQuantiles;
  for (int i = 0; i < size; ++i) {
    const int middle = (2 * i + 1) * (kQuantiles / 2) / size;
    const float value = normal_[middle] * static_cast<float>(deviation);
    table.push_back(dtype == Dtype::kFp4 ? kernels::FloatToE2m1(value)
                                         : kernels::FloatToE4m3(value));
  }
  return table;
}

void Filler::FillFloat(const Tensor& tensor, int64_t first, int64_t count, float* out) const {
  const auto a = static_cast<float>(tensor.recipe.a), b = static_cast<float>(tensor.recipe.b);
  const uint64_t key = Key(tensor.name);
  const float* normal = normal_.data();
  switch (tensor.recipe.kind) {
    case Kind::kNormal:
      return FillLanes(key, first, count, out,
                       [=](uint32_t lane) { return a + b * normal[lane >> 4]; });
    case Kind::kUniform:
      return FillLanes(key, first, count, out, [=](uint32_t lane) {
        return a + (b - a) * static_cast<float>(lane) / 65536.0f;
      });
    case Kind::kHyperBase: {
      // n * (2 + n) values: n pre, n post, then the n x n stream matrix.
      FillLanes(key, first, count, out, [=](uint32_t lane) { return b * normal[lane >> 4]; });
      const int64_t n = std::lround(std::sqrt(tensor.shape[0] + 1.0)) - 1;
      for (int64_t i = first; i < first + count; ++i) {
        if (i >= 2 * n && (i - 2 * n) / n == (i - 2 * n) % n) out[i - first] += a;
      }
      return;
    }
    default:
      KURUMA_CHECK(false && "no recipe for a float32 tensor");
  }
}

// Rows of the two heads: noise, plus the rows of `related` that the row's token should follow.
void Filler::FillAligned(const Tensor& tensor, int64_t first, int64_t count, uint16_t* out) const {
  const int64_t vocab = tensor.shape[0], cols = tensor.shape[1];
  const uint64_t key = Key(tensor.name), related = Key(tensor.recipe.related);
  const auto a = static_cast<float>(tensor.recipe.a), b = static_cast<float>(tensor.recipe.b);
  const bool markov = tensor.recipe.kind == Kind::kMarkovHead;
  for (int64_t i = first; i < first + count; i += 4) {  // cols % 4 == 0: four of one row
    const int64_t row = i / cols, previous = Predecessor(row, vocab);
    // Of a Markov head 55 % of the tokens name their true successor, 15 % a wrong one.
    const int64_t misled = (previous + vocab / 2) % vocab;
    const bool from_previous = !markov || Word(related, -1 - previous) % 100 < 55;
    const bool from_misled = markov && Word(related, -1 - misled) % 100 >= 85;
    const uint64_t noise = Word(key, i / 4);
    const uint64_t right = Word(related, (previous * cols + i % cols) / 4);
    const uint64_t wrong = Word(related, (misled * cols + i % cols) / 4);
    for (int64_t lane = 0; lane < std::min<int64_t>(4, first + count - i); ++lane) {
      const auto draw = [&](uint64_t word) { return normal_[word >> (16 * lane + 4) & 0xFFF]; };
      float value = a * draw(noise);
      if (from_previous) value += b * kernels::RoundBf16(draw(right));
      if (from_misled) value += b * kernels::RoundBf16(draw(wrong));
      out[i - first + lane] = kernels::FloatToBf16(value);
    }
  }
}

void Filler::Fill(const Tensor& tensor, int64_t first, int64_t count, std::span<std::byte> out) {
  KURUMA_CHECK(first % 4 == 0);
  const uint64_t key = Key(tensor.name);
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  auto* halves = reinterpret_cast<uint16_t*>(out.data());
  switch (tensor.dtype) {
    case Dtype::kF32:
      return FillFloat(tensor, first, count, reinterpret_cast<float*>(out.data()));
    case Dtype::kBf16: {
      if (tensor.recipe.kind != Kind::kNormal) return FillAligned(tensor, first, count, halves);
      std::array<uint16_t, kQuantiles> table;
      for (int i = 0; i < kQuantiles; ++i) {
        table[i] = kernels::FloatToBf16(static_cast<float>(tensor.recipe.a) +
                                        static_cast<float>(tensor.recipe.b) * normal_[i]);
      }
      return FillLanes(key, first, count, halves, [&](uint32_t lane) { return table[lane >> 4]; });
    }
    case Dtype::kE8m0: {
      const auto base = static_cast<uint32_t>(tensor.recipe.a);
      const auto choices = static_cast<uint32_t>(tensor.recipe.b);
      return FillLanes(key, first, count, bytes, [=](uint32_t lane) {
        return static_cast<uint8_t>(base + (lane * choices >> 16));
      });
    }
    case Dtype::kFp8: {
      const uint8_t* table = CodeTable(tensor.dtype, tensor.recipe.b).data();
      return FillLanes(key, first, count, bytes, [=](uint32_t lane) { return table[lane >> 4]; });
    }
    case Dtype::kFp4: {
      const uint8_t* table = CodeTable(tensor.dtype, tensor.recipe.b).data();
      return FillLanes(key, first, count, bytes, [=](uint32_t lane) {
        return static_cast<uint8_t>(table[lane & 0xFF] | table[lane >> 8] << 4);
      });
    }
  }
}

}  // namespace kuruma::bench_checkpoint
