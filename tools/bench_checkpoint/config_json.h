// config.json of a random checkpoint, in the released nesting and key names.
#ifndef KURUMA_TOOLS_BENCH_CHECKPOINT_CONFIG_JSON_H_
#define KURUMA_TOOLS_BENCH_CHECKPOINT_CONFIG_JSON_H_

#include <cstdint>
#include <string>

#include "bench_checkpoint/shape.h"

namespace kuruma::bench_checkpoint {

// Text of config.json; what the model reads back equals `shape.config`.
std::string ConfigJson(const Shape& shape);

// Text of engram_token_map.json, which stands for the tokenizer in a checkpoint without one: the
// class of every token (a random surjection, numbered by first appearance), the class of the pad
// token, and the hash constants that the rules give. Multipliers are strings: they exceed 2^53.
std::string TokenMapJson(const model::ModelConfig& config, uint64_t seed);

}  // namespace kuruma::bench_checkpoint

#endif  // KURUMA_TOOLS_BENCH_CHECKPOINT_CONFIG_JSON_H_
