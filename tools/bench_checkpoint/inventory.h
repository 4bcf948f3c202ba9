// Every tensor of a checkpoint in the released layout: name, format, shape, and the distribution
// its random values are drawn from. No bytes are made here.
#ifndef KURUMA_TOOLS_BENCH_CHECKPOINT_INVENTORY_H_
#define KURUMA_TOOLS_BENCH_CHECKPOINT_INVENTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench_checkpoint/shape.h"

namespace kuruma::bench_checkpoint {

enum class Dtype { kF32, kBf16, kFp8, kE8m0, kFp4 };

// As safetensors headers spell it; packed FP4 is "I8", two values per element.
const char* DtypeName(Dtype dtype);

// What a tensor's bytes are counted as.
enum class Group {
  kEmbedding,
  kHead,
  kNorm,
  kHyper,  // hyper-connections
  kDense,  // FP8 matrices of attention and shared experts
  kExperts,
  kRouter,
  kCompressor,   // compressors and indexers
  kEngramDense,  // projections of the Engram rows
  kEngramTable,
  kDraft,
  kVision,
};
inline constexpr int kGroups = 12;
const char* GroupName(Group group);

// How values are drawn. The random part depends on seed, tensor name and element number alone.
struct Recipe {
  enum class Kind {
    kNormal,      // mean a, standard deviation b; for kFp8 and kFp4 in units of the codes
    kUniform,     // from a to b
    kHyperBase,   // standard deviation b, plus a on the diagonal of the stream matrix
    kScales,      // E8M0 bytes a, a + 1, ... a + b - 1, equally likely
    kHead,        // deviation a, plus b times the `related` row of the preceding token
    kMarkovHead,  // deviation a, plus b times `related` rows that name a likely next token
  };
  Kind kind = Kind::kNormal;
  double a = 0;
  double b = 1;
  std::string related = {};
};

struct Tensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  Group group = Group::kDense;
  Recipe recipe;

  int64_t elements() const;
  int64_t bytes() const;
};

// Tensors that are stored together; the released checkpoint has one shard per unit.
using Unit = std::vector<Tensor>;

// Units in the released order: embeddings (and vision), head and last norm, backbone layers, draft
// globals, draft stages, Engram tables.
std::vector<Unit> MakeInventory(const Shape& shape);

struct Totals {
  int64_t tensors = 0;
  int64_t bytes = 0;
};
Totals Count(const std::vector<Unit>& units);

}  // namespace kuruma::bench_checkpoint

#endif  // KURUMA_TOOLS_BENCH_CHECKPOINT_INVENTORY_H_
