// Which roundings the forward pass performs (DESIGN.md "Numeric conventions").
#ifndef KURUMA_MODEL_NUMERICS_H_
#define KURUMA_MODEL_NUMERICS_H_

#include <string>

#include "base/status.h"
#include "kernels/formats.h"

namespace kuruma::model {

// Rounding points as facts; the three modes are the combinations that exist.
struct Numerics {
  const char* name = "release";
  bool bf16 = true;                  // activations between operators hold bfloat16 values
  bool quantize_activations = true;  // FP8 per-32 inputs of every FP8/FP4 product
  bool quantize_caches = true;       // FP8 windows, FP4 compressed rows and index vectors
  bool fp8_output_lora = true;       // first output projection: FP8 in, float32 handed on
  bool fused_swiglu = true;          // SwiGLU product is quantised from float32
  bool index_single_round = true;    // index scores: one rounding at the end
  kernels::Fp4Division fp4_division = kernels::Fp4Division::kReciprocal;
};

// "release": rounding points of the released serving engine. "exact": dequantised weights, float32
// activations, nothing quantised. "vendor": rounding points of the single-file reference.
// InvalidArgument names an unknown mode.
inline Result<Numerics> FindNumerics(const std::string& name) {
  if (name == "release") return Numerics{};
  if (name == "exact") {
    return Numerics{.name = "exact",
                    .bf16 = false,
                    .quantize_activations = false,
                    .quantize_caches = false,
                    .fp8_output_lora = false,
                    .fused_swiglu = false};
  }
  if (name == "vendor") {
    return Numerics{.name = "vendor",
                    .fp8_output_lora = false,
                    .fused_swiglu = false,
                    .index_single_round = false,
                    .fp4_division = kernels::Fp4Division::kTrue};
  }
  return InvalidArgument("numerics \"" + name + "\" is unknown (release, exact, vendor)");
}

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_NUMERICS_H_
