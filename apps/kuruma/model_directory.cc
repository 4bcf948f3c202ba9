#include "model_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "inputs.h"

namespace kuruma {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBundled = "models/tiny";
constexpr int kLevelsAbove = 4;  // build/release/kuruma is two levels below the repository

Result<nlohmann::json> ReadObject(const std::string& path) {
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLoss(path + ": not a JSON object");
  return json;
}

Result<std::string> FindBundledModel() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  fs::path folder = program.parent_path();
  const fs::path installed = folder.parent_path() / "share" / "kuruma" / kBundled;
  for (int level = 0; level < kLevelsAbove && !folder.empty(); ++level) {
    const fs::path model = folder / kBundled;
    if (FileExists(model / "config.json")) return model.string();
    folder = folder.parent_path();
  }
  if (FileExists(installed / "config.json")) return installed.string();
  return NotFound(fmt::format("no bundled model ({}) above {}; give --model DIR", kBundled,
                              program.parent_path().string()));
}

struct Range {
  double low;
  double high;
  bool open_low = false;
};

// Field `key` of `json`, if there and not null.
template <typename T>
Status Read(const nlohmann::json& json, const char* key, const Range& range, T* value) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return Status();
  const bool right_type = std::is_integral_v<T> ? found->is_number_integer() : found->is_number();
  const double number = right_type ? found->template get<double>() : range.low - 1;
  if (number < range.low || number > range.high || (range.open_low && number == range.low)) {
    return DataLoss(fmt::format("{}: must be a number in its range, got {}", key, found->dump()));
  }
  *value = found->template get<T>();
  return Status();
}

Status ReadFields(const nlohmann::json& json, SamplingDefaults* defaults) {
  constexpr double kAny = std::numeric_limits<double>::max();
  constexpr double kManyTokens = 1e9;
  KURUMA_RETURN_IF_ERROR(Read(json, "temperature", {0, kAny}, &defaults->temperature));
  KURUMA_RETURN_IF_ERROR(Read(json, "top_p", {0, 1, true}, &defaults->top_p));
  KURUMA_RETURN_IF_ERROR(Read(json, "top_k", {0, kManyTokens}, &defaults->top_k));
  KURUMA_RETURN_IF_ERROR(Read(json, "min_p", {0, 1}, &defaults->min_p));
  KURUMA_RETURN_IF_ERROR(
      Read(json, "repetition_penalty", {0, kAny, true}, &defaults->repetition_penalty));
  const auto samples = json.find("do_sample");
  if (samples == json.end() || samples->is_null()) return Status();
  if (!samples->is_boolean()) return DataLoss("do_sample: must be true or false");
  if (!samples->get<bool>()) defaults->temperature = 0;
  return Status();
}

}  // namespace

bool FileExists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

Result<std::string> ModelDirectory(const std::string& given) {
  if (given.empty()) return FindBundledModel();
  struct stat info {};
  if (stat(given.c_str(), &info) != 0) return NotFound(given + ": no such directory");
  if (!S_ISDIR(info.st_mode)) return NotFound(given + ": not a directory");
  return given;
}

Result<std::string> TokenizerFile(const std::string& given) {
  if (!given.empty()) return given;
  KURUMA_ASSIGN_OR_RETURN(const std::string directory, FindBundledModel());
  return directory + "/tokenizer.json";
}

Result<SamplingDefaults> ReadSamplingDefaults(const std::string& directory) {
  const std::string path = directory + "/generation_config.json";
  SamplingDefaults defaults;
  if (!FileExists(path)) return defaults;
  KURUMA_ASSIGN_OR_RETURN(const nlohmann::json json, ReadObject(path));
  const Status read = ReadFields(json, &defaults);
  if (!read.ok()) return Status(read.code(), path + ": " + read.message());
  return defaults;
}

Result<bool> ReadRandomWeights(const std::string& directory) {
  const std::string path = directory + "/kuruma.json";
  if (!FileExists(path)) return false;
  KURUMA_ASSIGN_OR_RETURN(const nlohmann::json json, ReadObject(path));
  const auto random = json.find("random_weights");
  if (random == json.end()) return false;
  if (!random->is_boolean()) return DataLoss(path + ": random_weights: must be true or false");
  return random->get<bool>();
}

}  // namespace kuruma
