// Loads the tiny checkpoints of tests/golden.
#ifndef KURUMA_TESTS_SUPPORT_TINY_MODEL_H_
#define KURUMA_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "tests/support/golden.h"

namespace kuruma::testing {

struct TinyOptions {
  std::string numerics = "release";
  std::string kernels = "cpu";
  model::PrefillMode prefill = model::PrefillMode::kExact;
  int64_t keep_tokens = 0;
  int threads = 1;
  const kernels::OpTable* ops = nullptr;  // instead of `kernels`; must outlive the model
};

struct Tiny {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<model::Model> model;
};

template <typename T>
T OrThrow(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result.value());
}

inline Tiny LoadTiny(const std::string& checkpoint, const TinyOptions& options) {
  const std::string directory = GoldenPath(checkpoint + "/checkpoint");
  Tiny tiny;
  tiny.pool = std::make_unique<ThreadPool>(options.threads);
  model::ModelOptions m;
  m.numerics = OrThrow(model::FindNumerics(options.numerics));
  m.ops = options.ops != nullptr ? options.ops : OrThrow(kernels::FindOps(options.kernels));
  m.pool = tiny.pool.get();
  m.prefill = options.prefill;
  m.keep_tokens = options.keep_tokens;
  m.token_classes =
      ReadJson(directory + "/engram_token_map.json")["token_map"].get<std::vector<int32_t>>();
  tiny.model = OrThrow(model::Model::Load(directory, std::move(m)));
  return tiny;
}

// The same tokens for the same seed, from the whole vocabulary.
inline std::vector<int32_t> RandomTokens(const model::Model& model, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % model.config().vocab);
  return tokens;
}

}  // namespace kuruma::testing

#endif  // KURUMA_TESTS_SUPPORT_TINY_MODEL_H_
