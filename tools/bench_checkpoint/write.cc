#include "bench_checkpoint/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench_checkpoint/config_json.h"
#include "bench_checkpoint/fill.h"

namespace kuruma::bench_checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkElements = int64_t{1} << 20;  // made and written at a time

Status WriteError(const fs::path& path) {
  return Internal(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
}

Status WriteText(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  return out ? Status() : WriteError(path);
}

// Length field and header of a safetensors file, padded so that the data begins at a multiple of 8.
std::string Header(const Unit& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const Tensor& t : tensors) {
    fmt::format_to(std::back_inserter(text),
                   R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", t.name,
                   DtypeName(t.dtype), fmt::join(t.shape, ","), offset, offset + t.bytes());
    offset += t.bytes();
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return length + text;
}

Status WriteData(const Unit& tensors, Filler& filler, const fs::path& path, std::ofstream& out) {
  std::vector<std::byte> buffer(kChunkElements * sizeof(float));
  for (const Tensor& tensor : tensors) {
    const int64_t all = tensor.elements(), width = tensor.bytes() / all;
    for (int64_t first = 0; first < all; first += kChunkElements) {
      const int64_t count = std::min(kChunkElements, all - first);
      filler.Fill(tensor, first, count, buffer);
      out.write(reinterpret_cast<const char*>(buffer.data()), count * width);
      if (!out) return WriteError(path);
    }
  }
  return {};
}

Status WriteShard(const Unit& tensors, Filler& filler, const fs::path& path, Contents contents) {
  std::ofstream out(path, std::ios::binary);
  const std::string header = Header(tensors);
  out << header;
  if (!out) return WriteError(path);
  if (contents == Contents::kFull) KURUMA_RETURN_IF_ERROR(WriteData(tensors, filler, path, out));
  out.close();
  if (!out) return WriteError(path);
  if (contents == Contents::kSparse) {
    std::error_code error;
    fs::resize_file(path, header.size() + Count({tensors}).bytes, error);
    if (error) {
      return Internal(fmt::format("cannot extend {}: {}", path.string(), error.message()));
    }
  }
  return {};
}

// Joins neighbouring units while the result stays within `shard_bytes`.
std::vector<Unit> JoinUnits(std::vector<Unit> units, int64_t shard_bytes) {
  std::vector<Unit> shards;
  int64_t bytes = 0;
  for (Unit& unit : units) {
    const int64_t more = Count({unit}).bytes;
    if (!shards.empty() && bytes + more <= shard_bytes) {
      std::ranges::move(unit, std::back_inserter(shards.back()));
      bytes += more;
    } else {
      shards.push_back(std::move(unit));
      bytes = more;
    }
  }
  return shards;
}

Status PrepareDirectory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return InvalidArgument(fmt::format("cannot make {}: {}", directory.string(), error.message()));
  }
  if (!fs::is_empty(directory)) {
    return InvalidArgument(fmt::format("{} is not empty; give a new directory or remove it first",
                                       directory.string()));
  }
  return {};
}

// What tells the classes of tokens: the tokenizer, or a map of its own.
Status WriteTokenClasses(const Shape& shape, const WriteOptions& options) {
  const fs::path directory = options.directory;
  if (options.tokenizer.empty()) {
    return WriteText(directory / "engram_token_map.json", TokenMapJson(shape.config, options.seed));
  }
  std::error_code error;
  fs::copy_file(options.tokenizer, directory / "tokenizer.json", error);
  if (error) {
    return NotFound(fmt::format("cannot copy {}: {}", options.tokenizer, error.message()));
  }
  return {};
}

}  // namespace

Status WriteCheckpoint(const Shape& shape, const WriteOptions& options) {
  const fs::path directory = options.directory;
  KURUMA_RETURN_IF_ERROR(PrepareDirectory(directory));
  const std::vector<Unit> shards = JoinUnits(MakeInventory(shape), options.shard_bytes);
  Filler filler(options.seed);
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const Tensor& tensor : shards[i]) weight_map[tensor.name] = name;
    KURUMA_RETURN_IF_ERROR(WriteShard(shards[i], filler, directory / name, options.contents));
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", Count(shards).bytes}}},
                                        {"weight_map", weight_map}};
  KURUMA_RETURN_IF_ERROR(
      WriteText(directory / "model.safetensors.index.json", index.dump(0) + "\n"));
  KURUMA_RETURN_IF_ERROR(WriteTokenClasses(shape, options));
  // Programs that show text to people say what it is worth.
  KURUMA_RETURN_IF_ERROR(WriteText(directory / "kuruma.json", "{\"random_weights\": true}\n"));
  return WriteText(directory / "config.json", ConfigJson(shape));
}

}  // namespace kuruma::bench_checkpoint
