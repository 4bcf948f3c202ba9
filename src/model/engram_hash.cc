#include "model/engram_hash.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

namespace kuruma::model {
namespace {

__extension__ using uint128 = unsigned __int128;

bool IsPrime(int64_t n) {
  if (n < 2 || n % 2 == 0) return n == 2;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

// The first eight 32-bit words that NumPy's SeedSequence(entropy) generates, entropy < 2^32.
std::array<uint32_t, 8> SeedWords(uint32_t entropy) {
  constexpr uint32_t kMultiplierA = 0x931e8875, kMultiplierB = 0x58f38ded;
  constexpr uint32_t kMixLeft = 0xca01f9dd, kMixRight = 0x4973f715;
  uint32_t hash = 0x43b0d7e5;
  const auto hash_word = [&hash](uint32_t value) {
    value ^= hash;
    hash *= kMultiplierA;
    value *= hash;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t mixed = kMixLeft * x - kMixRight * y;
    return mixed ^ (mixed >> 16);
  };
  std::array<uint32_t, 4> pool{};
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash_word(i == 0 ? entropy : 0);
  for (size_t src = 0; src < pool.size(); ++src) {
    for (size_t dst = 0; dst < pool.size(); ++dst) {
      if (src != dst) pool[dst] = mix(pool[dst], hash_word(pool[src]));
    }
  }
  uint32_t state = 0x8b51f9dd;
  std::array<uint32_t, 8> words{};
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t value = pool[i % pool.size()] ^ state;
    state *= kMultiplierB;
    value *= state;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

// PCG64 (XSL-RR 128/64), seeded as NumPy does.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t entropy) {
    const std::array<uint32_t, 8> w = SeedWords(entropy);
    const auto wide = [&w](size_t i) { return uint64_t{w[i + 1]} << 32 | w[i]; };
    const uint128 initial = uint128{wide(0)} << 64 | wide(2);
    const uint128 sequence = uint128{wide(4)} << 64 | wide(6);
    increment_ = sequence << 1 | 1;
    Step();
    state_ += initial;
    Step();
  }

  uint64_t Next() {
    Step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const unsigned turn = static_cast<unsigned>(state_ >> 122);
    return folded >> turn | folded << (-turn & 63);
  }

  // Uniform in [0, bound), Lemire's method.
  uint64_t Below(uint64_t bound) {
    uint128 product = uint128{Next()} * bound;
    const uint64_t reject_below = -bound % bound;
    while (static_cast<uint64_t>(product) < reject_below) product = uint128{Next()} * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void Step() {
    constexpr uint128 kMultiplier = uint128{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645;
    state_ = state_ * kMultiplier + increment_;
  }

  uint128 state_ = 0;
  uint128 increment_ = 0;
};

}  // namespace

std::vector<std::vector<int64_t>> EngramPrimes(int layers, int max_ngram, int heads,
                                               int64_t start) {
  std::unordered_set<int64_t> used;
  std::vector<std::vector<int64_t>> primes(layers);
  for (auto& layer : primes) {
    for (int ngram = 2; ngram <= max_ngram; ++ngram) {
      int64_t candidate = start - 1;
      for (int head = 0; head < heads; ++head) {
        do {
          ++candidate;
        } while (used.contains(candidate) || !IsPrime(candidate));
        used.insert(candidate);
        layer.push_back(candidate);
      }
    }
  }
  return primes;
}

std::vector<std::vector<int64_t>> EngramMultipliers(std::span<const int> layer_ids, int max_ngram,
                                                    int64_t classes) {
  const int64_t bound = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / classes / 2);
  std::vector<std::vector<int64_t>> multipliers;
  for (int layer : layer_ids) {
    Pcg64 generator(static_cast<uint32_t>(10007 * layer));
    std::vector<int64_t>& row = multipliers.emplace_back();
    for (int s = 0; s < max_ngram; ++s) {
      row.push_back(static_cast<int64_t>(generator.Below(static_cast<uint64_t>(bound))) * 2 + 1);
    }
  }
  return multipliers;
}

void EngramHash::Rows(std::span<const int32_t> classes, int64_t* rows) const {
  int64_t rolling = 0;
  for (size_t back = 0; back < multipliers.size(); ++back) {
    const int64_t token_class = back < classes.size() ? classes[back] : pad_class;
    rolling ^= token_class * multipliers[back];
    if (back == 0) continue;
    for (int head = 0; head < heads; ++head) {
      const size_t k = (back - 1) * heads + head;
      rows[k] = rolling % primes[k] + offsets[k];
    }
  }
}

}  // namespace kuruma::model
