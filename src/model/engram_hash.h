// Which rows of an Engram table a token looks up: hashed n-grams of token classes.
// Source: released engram recipe; NumPy's SeedSequence, PCG64 and bounded integers (public
// algorithms: O'Neill 2014, Lemire 2019), needed to reproduce the multipliers.
#ifndef KURUMA_MODEL_ENGRAM_HASH_H_
#define KURUMA_MODEL_ENGRAM_HASH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kuruma::model {

// primes[layer][(ngram - 2) * heads + head]: unused primes >= start, handed out in the order layer,
// n-gram size, head. Pure.
std::vector<std::vector<int64_t>> EngramPrimes(int layers, int max_ngram, int heads, int64_t start);

// multipliers[i][s] of layer layer_ids[i], s tokens back: odd, and class * multiplier fits int64.
// Equals default_rng(10007 * layer).integers(0, bound, size=max_ngram) * 2 + 1. Pure.
std::vector<std::vector<int64_t>> EngramMultipliers(std::span<const int> layer_ids, int max_ngram,
                                                    int64_t classes);

// Constants of one Engram layer.
struct EngramHash {
  int heads = 0;
  int64_t pad_class = 0;
  std::vector<int64_t> primes;       // [(max_ngram - 1) * heads]
  std::vector<int64_t> offsets;      // first table row of each prime's range
  std::vector<int64_t> multipliers;  // [max_ngram]

  // Table rows of the n-grams ending with the newest token, n-gram major then head. `classes` holds
  // the classes of the newest max_ngram tokens, newest first; missing ones count as pad, and so
  // does everything before a missing one. `rows` has room for primes.size() entries.
  void Rows(std::span<const int32_t> classes, int64_t* rows) const;
};

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_ENGRAM_HASH_H_
