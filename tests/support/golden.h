// Reads the reference data of tests/golden for tests.
#ifndef KURUMA_TESTS_SUPPORT_GOLDEN_H_
#define KURUMA_TESTS_SUPPORT_GOLDEN_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/view.h"
#include "kernels/formats.h"
#include "model/safetensors.h"

namespace kuruma::testing {

// Absolute path of a file under tests/golden.
inline std::string GoldenPath(const std::string& name) {
  return std::string(KURUMA_SOURCE_DIR) + "/tests/golden/" + name;
}

inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

// A safetensors file whose tensors are read as floats, integers or bytes.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name) {
    auto file = model::SafetensorsFile::Open(GoldenPath(name), model::ReadScope::kWhole);
    if (!file.ok()) throw std::runtime_error(file.status().message());
    file_ = std::move(file.value());
  }

  bool Has(const std::string& name) const { return file_->header().tensors.contains(name); }

  const model::TensorInfo& Info(const std::string& name) const {
    const auto it = file_->header().tensors.find(name);
    if (it == file_->header().tensors.end()) throw std::runtime_error("no tensor " + name);
    return it->second;
  }

  std::vector<int64_t> Shape(const std::string& name) const { return Info(name).shape; }

  // Values of an F32 or BF16 tensor.
  std::vector<float> Floats(const std::string& name) const {
    const model::TensorInfo& info = Info(name);
    if (info.dtype == model::DType::kBf16) {
      std::vector<float> values(info.bytes / 2);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = kernels::Bf16ToFloat(reinterpret_cast<const uint16_t*>(info.data)[i]);
      }
      return values;
    }
    if (info.dtype != model::DType::kF32) throw std::runtime_error(name + " is not a float");
    const auto* begin = reinterpret_cast<const float*>(info.data);
    return {begin, begin + info.bytes / 4};
  }

  // Values of a U8, I8, I32 or I64 tensor.
  std::vector<int64_t> Integers(const std::string& name) const {
    const model::TensorInfo& info = Info(name);
    std::vector<int64_t> values;
    const int64_t size = model::DTypeBytes(info.dtype);
    for (int64_t i = 0; i < info.bytes / size; ++i) {
      const std::byte* at = info.data + i * size;
      if (info.dtype == model::DType::kU8) values.push_back(static_cast<uint8_t>(*at));
      if (info.dtype == model::DType::kI8) values.push_back(static_cast<int8_t>(*at));
      if (info.dtype == model::DType::kI32) {
        int32_t v;
        std::memcpy(&v, at, 4);
        values.push_back(v);
      }
      if (info.dtype == model::DType::kI64) {
        int64_t v;
        std::memcpy(&v, at, 8);
        values.push_back(v);
      }
    }
    return values;
  }

 private:
  std::unique_ptr<model::SafetensorsFile> file_;
};

// How far `actual` is from `expected`.
struct Deviation {
  double max_abs = 0;
  double relative_rms = 0;  // rms of the difference over rms of the expected values
  size_t worst = 0;         // index of max_abs
};

inline Deviation Compare(const float* actual, const float* expected, size_t n) {
  Deviation d;
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; ++i) {
    const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
    if (!(error <= d.max_abs)) {
      d.max_abs = error;
      d.worst = i;
    }
    difference += error * error;
    size += static_cast<double>(expected[i]) * expected[i];
  }
  d.relative_rms = size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
  return d;
}

}  // namespace kuruma::testing

#endif  // KURUMA_TESTS_SUPPORT_GOLDEN_H_
