// Byte-pair merging of one piece.
#ifndef KURUMA_TEXT_BPE_H_
#define KURUMA_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kuruma::text {

// Two adjacent tokens that merge into one. A merge's rank is its index in the list.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

// The merge rules. Immutable after construction; Append may be called from any number of threads.
// Source: byte-pair encoding as Hugging Face tokenizers run it: repeatedly the adjacent pair of
// lowest rank, leftmost on ties.
class Bpe {
 public:
  // `byte_ids`: the token of each single byte. `merges` without repeated pairs. `token_bytes`: what
  // every token stands for, by id; empty entries are no result of a merge and are never produced.
  Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
      const std::vector<std::string_view>& token_bytes);

  // Appends the ids of `piece` (any bytes, below 4 GiB) to `ids`. O(n log n).
  void Append(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct Rule {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  const Rule* Find(int32_t left, int32_t right) const;
  int32_t FindWhole(std::string_view piece) const;
  void MergeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void MergeLong(std::string_view piece, std::vector<int32_t>* ids) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Rule> rules_;  // open addressing, size a power of two
  int rule_shift_ = 0;
  // Tokens whose own bytes merge to exactly themselves, by a hash of these bytes: most pieces of
  // ordinary text are such tokens, and one probe replaces the merging.
  std::vector<int32_t> whole_;  // open addressing, -1 is empty
  int whole_shift_ = 0;
  std::vector<std::string_view> token_bytes_;
};

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_BPE_H_
