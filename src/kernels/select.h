// Choosing compressed entries from index scores: exact, one implementation for every target.
#ifndef KURUMA_KERNELS_SELECT_H_
#define KURUMA_KERNELS_SELECT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kuruma::kernels {

// Positions of the k largest scores in ascending position; equal scores prefer the lower position.
// Entries scored -infinity are never chosen. Fewer than k candidates: all of them.
std::vector<int32_t> SelectTopK(std::span<const float> scores, int64_t k);

struct CandidatePool {
  int64_t block_size = 0;
  std::vector<int32_t> blocks;  // kept blocks, ascending

  // Copy of `scores` with every entry outside the pool at -infinity.
  std::vector<float> Mask(std::span<const float> scores) const;
};

// The best `max_blocks` blocks of `block_size` entries by their largest score; the newest, possibly
// partial block is always kept. Ties prefer the lower block.
CandidatePool BuildCandidatePool(std::span<const float> scores, int64_t block_size,
                                 int64_t max_blocks);

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_SELECT_H_
