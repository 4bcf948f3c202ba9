#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kuruma::text {
namespace {

// Random rules over the letters a, b, c: every merge joins two tokens that exist already.
struct Rules {
  std::array<int32_t, 256> byte_ids{};
  std::vector<std::string> tokens;
  std::vector<Merge> merges;
};

Rules RandomRules(std::mt19937& random) {
  Rules rules;
  for (int byte = 0; byte < 256; ++byte) {
    rules.byte_ids[static_cast<size_t>(byte)] = byte;
    rules.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<int32_t> pool = {'a', 'b', 'c'};
  std::map<std::pair<int32_t, int32_t>, bool> used;
  for (int i = 0; i < 30; ++i) {
    const int32_t left = pool[random() % pool.size()];
    const int32_t right = pool[random() % pool.size()];
    const std::string joined =
        rules.tokens[static_cast<size_t>(left)] + rules.tokens[static_cast<size_t>(right)];
    if (std::exchange(used[{left, right}], true)) continue;
    auto found = std::find(rules.tokens.begin(), rules.tokens.end(), joined);
    const auto result = static_cast<int32_t>(found - rules.tokens.begin());
    if (found == rules.tokens.end()) {
      rules.tokens.push_back(joined);
      pool.push_back(result);
    }
    rules.merges.push_back({left, right, result});
  }
  // The order of the list is the rank: shuffled, long tokens often come before their parts.
  std::shuffle(rules.merges.begin(), rules.merges.end(), random);
  return rules;
}

// The definition, word for word.
std::vector<int32_t> Naive(const Rules& rules, const std::string& piece) {
  std::vector<int32_t> ids;
  for (const char c : piece) ids.push_back(rules.byte_ids[static_cast<uint8_t>(c)]);
  for (;;) {
    size_t best = ids.size();
    size_t best_rank = rules.merges.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (rules.merges[rank].left == ids[i] && rules.merges[rank].right == ids[i + 1]) {
          best = i;
          best_rank = rank;
        }
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = rules.merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Lengths on both sides of the switch from scanning to the heap.
TEST(Bpe, MergesAsTheDefinitionSays) {
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    const Rules rules = RandomRules(random);
    const std::vector<std::string_view> tokens(rules.tokens.begin(), rules.tokens.end());
    const Bpe bpe(rules.byte_ids, rules.merges, tokens);
    for (const size_t length :
         {1u, 2u, 3u, 7u, 20u, 31u, 32u, 33u, 47u, 48u, 49u, 50u, 64u, 65u, 200u}) {
      std::string piece;
      while (piece.size() < length) piece += static_cast<char>('a' + random() % 3);
      std::vector<int32_t> ids;
      bpe.Append(piece, &ids);
      EXPECT_EQ(ids, Naive(rules, piece)) << piece;
    }
  }
}

}  // namespace
}  // namespace kuruma::text
