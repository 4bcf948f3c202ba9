#include "kernels/select.h"

#include <algorithm>
#include <limits>

namespace kuruma::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

std::vector<int32_t> SelectTopK(std::span<const float> scores, int64_t k) {
  std::vector<int32_t> order;
  order.reserve(scores.size());
  for (size_t j = 0; j < scores.size(); ++j) {
    if (scores[j] > kMinusInfinity) order.push_back(static_cast<int32_t>(j));
  }
  if (k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    order.resize(k);
    std::sort(order.begin(), order.end());
  }
  return order;
}

std::vector<float> CandidatePool::Mask(std::span<const float> scores) const {
  std::vector<float> masked(scores.size(), kMinusInfinity);
  for (int32_t block : blocks) {
    const int64_t begin = block * block_size;
    const int64_t end = std::min<int64_t>(begin + block_size, static_cast<int64_t>(scores.size()));
    for (int64_t j = begin; j < end; ++j) masked[j] = scores[j];
  }
  return masked;
}

CandidatePool BuildCandidatePool(std::span<const float> scores, int64_t block_size,
                                 int64_t max_blocks) {
  const int64_t visible = static_cast<int64_t>(scores.size());
  const int64_t blocks = (visible + block_size - 1) / block_size;
  std::vector<float> best(blocks, kMinusInfinity);
  for (int64_t j = 0; j < visible; ++j) {
    best[j / block_size] = std::max(best[j / block_size], scores[j]);
  }
  if (blocks > 0) best[blocks - 1] = std::numeric_limits<float>::infinity();
  return {block_size, SelectTopK(best, max_blocks)};
}

}  // namespace kuruma::kernels
