// Random tensor contents at memory speed: a counter-based generator and table look-ups, so that any
// range of any tensor can be made without the rest.
#ifndef KURUMA_TOOLS_BENCH_CHECKPOINT_FILL_H_
#define KURUMA_TOOLS_BENCH_CHECKPOINT_FILL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench_checkpoint/inventory.h"

namespace kuruma::bench_checkpoint {

// One owner at a time: keeps tables of the distributions it has met.
class Filler {
 public:
  explicit Filler(uint64_t seed);

  // Writes elements [first, first + count) of `tensor` to `out`, which has room for them. `first`
  // is a multiple of 4. The bytes depend on seed, tensor and element numbers alone.
  void Fill(const Tensor& tensor, int64_t first, int64_t count, std::span<std::byte> out);

 private:
  uint64_t Key(const std::string& name) const;
  const std::vector<uint8_t>& CodeTable(Dtype dtype, double deviation);
  void FillFloat(const Tensor& tensor, int64_t first, int64_t count, float* out) const;
  void FillAligned(const Tensor& tensor, int64_t first, int64_t count, uint16_t* out) const;

  uint64_t seed_;
  std::vector<float> normal_;  // quantiles of the standard normal distribution
  std::map<std::pair<Dtype, double>, std::vector<uint8_t>> code_tables_;
};

}  // namespace kuruma::bench_checkpoint

#endif  // KURUMA_TOOLS_BENCH_CHECKPOINT_FILL_H_
