#include "model/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kuruma::model {
namespace {

using Json = nlohmann::json;

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kSingleFile = "model.safetensors";

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

// tensor -> shard file name, as the index says; empty for a lone model.safetensors.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return DataLoss(path + ": cannot be read");
  const Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return DataLoss(path + ": not valid JSON");
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return DataLoss(path + ": no weight_map object");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) {
      return DataLoss(fmt::format("{}: tensor {}: shard is not a string", path, tensor));
    }
    const std::string name = shard.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
      return DataLoss(
          fmt::format("{}: tensor {}: shard \"{}\" is not a plain file name", path, tensor, name));
    }
    shards.emplace(tensor, name);
  }
  if (shards.empty()) return DataLoss(path + ": weight_map is empty");
  return shards;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& directory,
                                                     ReadScope scope) {
  if (!IsDirectory(directory)) return NotFound(directory + ": not a directory");
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->directory_ = directory;
  const std::string index_path = directory + "/" + kIndexFile;
  std::map<std::string, std::string> index;
  if (Exists(index_path)) {
    KURUMA_ASSIGN_OR_RETURN(index, ReadIndex(index_path));
  } else if (!Exists(directory + "/" + kSingleFile)) {
    return NotFound(
        fmt::format("{}: neither {} nor {} is there", directory, kIndexFile, kSingleFile));
  }
  std::map<std::string, const SafetensorsFile*> opened;
  const auto open_shard = [&](const std::string& name) -> Status {
    if (opened.contains(name)) return Status();
    KURUMA_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(directory + "/" + name, scope));
    opened[name] = file.get();
    checkpoint->shards_.push_back(std::move(file));
    return Status();
  };
  if (index.empty()) {
    KURUMA_RETURN_IF_ERROR(open_shard(kSingleFile));
    for (const auto& [tensor, info] : opened[kSingleFile]->header().tensors) {
      index.emplace(tensor, kSingleFile);
    }
  }
  for (const auto& [tensor, shard] : index) {
    KURUMA_RETURN_IF_ERROR(open_shard(shard));
    const auto& tensors = opened[shard]->header().tensors;
    const auto it = tensors.find(tensor);
    if (it == tensors.end()) {
      return DataLoss(fmt::format("{}/{}: tensor {} is missing, though the index places it there",
                                  directory, shard, tensor));
    }
    checkpoint->tensors_.emplace(tensor, Place{&it->second, opened[shard]});
  }
  return checkpoint;
}

const TensorInfo* Checkpoint::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second.info;
}

std::string Checkpoint::FileOf(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? directory_ : it->second.shard->path();
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

}  // namespace kuruma::model
