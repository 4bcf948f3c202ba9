// Rotation tables: frequencies per layer kind, cosines and sines per position.
#ifndef KURUMA_MODEL_ROPE_H_
#define KURUMA_MODEL_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/view.h"
#include "model/config.h"

namespace kuruma::model {

// Inverse frequencies [rope_dim / 2]: theta^(-2i / dim), all steps in float32. With `scaling` the
// YaRN ramp applies at every sequence length and changes neither magnitude nor softmax scale.
// Source: specification of the text path, section "RoPE" (vendor reference).
std::vector<float> RopeFrequencies(int64_t rope_dim, double theta, const RopeScaling* scaling);

// cos and sin [positions, pairs] of the float32 product position * frequency.
void RopeAngles(std::span<const int64_t> positions, std::span<const float> frequencies, Rows cos,
                Rows sin);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_ROPE_H_
