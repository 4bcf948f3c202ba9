// Writes a checkpoint directory: shards, index, config.
#ifndef KURUMA_TOOLS_BENCH_CHECKPOINT_WRITE_H_
#define KURUMA_TOOLS_BENCH_CHECKPOINT_WRITE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "bench_checkpoint/inventory.h"

namespace kuruma::bench_checkpoint {

// What follows the header in a shard.
enum class Contents {
  kFull,
  kHeaderOnly,  // nothing: the file ends with the header
  kSparse,      // a hole of the full length, where the file system has holes
};

struct WriteOptions {
  std::string directory = {};  // made if missing; must be empty
  uint64_t seed = 1;
  int64_t shard_bytes = 0;  // join neighbouring units up to this size; 0: one shard per unit
  Contents contents = Contents::kFull;
  std::string tokenizer = {};  // a tokenizer.json to copy; empty: write engram_token_map.json
};

// Writes the checkpoint; config.json comes last, so a directory that has one is complete. Memory
// use does not depend on the size. Failures name the file and the reason.
Status WriteCheckpoint(const Shape& shape, const WriteOptions& options);

}  // namespace kuruma::bench_checkpoint

#endif  // KURUMA_TOOLS_BENCH_CHECKPOINT_WRITE_H_
