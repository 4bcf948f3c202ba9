// The sizes of a random checkpoint: a preset, then what the command line changes.
#ifndef KURUMA_TOOLS_BENCH_CHECKPOINT_SHAPE_H_
#define KURUMA_TOOLS_BENCH_CHECKPOINT_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/config.h"

namespace kuruma::bench_checkpoint {

struct Shape {
  model::ModelConfig config;
  bool vision = false;  // the vision branch is stored too
};

// What may differ from a preset; nothing set means the preset's value.
struct Changes {
  std::optional<int> layers = {};      // >= 6; roles of the layers are dealt out anew
  std::optional<int64_t> hidden = {};  // a multiple of 32
  std::optional<int> experts = {};     // routed experts per backbone layer
  std::optional<int64_t> vocab = {};   // >= 16
  std::optional<int32_t> classes =
      {};                              // Engram token classes; without this the released proportion
  std::optional<double> size_gb = {};  // 10^9 bytes; chooses `experts`
  bool draft = true;                   // false: no draft stages
};

// Names for --preset: "nano" (1.4 MB, every feature), "demo" (meant for the real tokenizer),
// "bench" (1.3 GB, the released proportions at 1/400 of the size), "released".
const std::vector<std::string>& PresetNames();

// kInvalidArgument, with the rule, when preset and changes do not give a model.
Result<Shape> MakeShape(const std::string& preset, const Changes& changes);

}  // namespace kuruma::bench_checkpoint

#endif  // KURUMA_TOOLS_BENCH_CHECKPOINT_SHAPE_H_
