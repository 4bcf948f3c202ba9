#include "model/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace kuruma::model {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr int64_t kMaxHeaderBytes = int64_t{1} << 30;

struct DTypeEntry {
  DType dtype;
  const char* name;
  int64_t bytes;
};
constexpr DTypeEntry kDTypes[] = {
    {DType::kF32, "F32", 4},        {DType::kF16, "F16", 2},        {DType::kBf16, "BF16", 2},
    {DType::kF8E4m3, "F8_E4M3", 1}, {DType::kF8E8m0, "F8_E8M0", 1}, {DType::kI8, "I8", 1},
    {DType::kU8, "U8", 1},          {DType::kI32, "I32", 4},        {DType::kI64, "I64", 8},
    {DType::kF64, "F64", 8},        {DType::kBool, "BOOL", 1},
};

DType DTypeFromName(std::string_view name) {
  for (const DTypeEntry& entry : kDTypes) {
    if (name == entry.name) return entry.dtype;
  }
  return DType::kOther;
}

Status BadTensor(const std::string& file, const std::string& tensor, const std::string& fault) {
  return DataLoss(fmt::format("{}: tensor {}: {}", file, tensor, fault));
}

// A list of non-negative integers below 2^62, or nothing.
std::optional<std::vector<int64_t>> SizeList(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array() || it->size() > 64) return std::nullopt;
  std::vector<int64_t> list;
  for (const Json& item : *it) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() >= (uint64_t{1} << 62)) {
      return std::nullopt;
    }
    list.push_back(item.get<int64_t>());
  }
  return list;
}

// Elements of a shape, or -1 on overflow.
int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) {
    if (__builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

Result<TensorInfo> ParseTensor(const Json& entry, int64_t data_begin, const std::string& file,
                               const std::string& name) {
  if (!entry.is_object()) return BadTensor(file, name, "entry is not an object");
  TensorInfo info;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return BadTensor(file, name, "no dtype");
  info.dtype = DTypeFromName(dtype->get_ref<const std::string&>());
  if (info.dtype == DType::kOther) {
    return BadTensor(file, name, fmt::format("unknown dtype {}", dtype->dump()));
  }
  const auto shape = SizeList(entry, "shape");
  if (!shape) return BadTensor(file, name, "shape is not a list of sizes");
  info.shape = *shape;
  const auto offsets = SizeList(entry, "data_offsets");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return BadTensor(file, name, "data_offsets is not a pair [begin, end]");
  }
  info.bytes = (*offsets)[1] - (*offsets)[0];
  if (__builtin_add_overflow(data_begin, (*offsets)[0], &info.begin)) {
    return BadTensor(file, name, "data_offsets overflow");
  }
  int64_t expected = Elements(info.shape);
  if (expected < 0 || __builtin_mul_overflow(expected, DTypeBytes(info.dtype), &expected) ||
      expected != info.bytes) {
    return BadTensor(file, name,
                     fmt::format("{} needs {} bytes, data_offsets span {}", info.Describe(),
                                 expected, info.bytes));
  }
  return info;
}

// Tensors must cover the data section from `data_begin` without overlap or gap.
Status CheckCoverage(SafetensorsHeader* header, int64_t data_begin, const std::string& file) {
  std::vector<std::pair<const TensorInfo*, const std::string*>> order;
  for (const auto& [name, info] : header->tensors) order.emplace_back(&info, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->bytes) < std::pair(b.first->begin, b.first->bytes);
  });
  int64_t next = data_begin;
  for (const auto& [info, name] : order) {
    if (info->begin < next) return BadTensor(file, *name, "overlaps the tensor before it");
    if (info->begin > next) {
      return BadTensor(file, *name,
                       fmt::format("leaves a gap of {} bytes before it", info->begin - next));
    }
    if (__builtin_add_overflow(next, info->bytes, &next)) {
      return BadTensor(file, *name, "data_offsets overflow");
    }
  }
  header->file_bytes = next;
  return Status();
}

std::string Errno() { return std::strerror(errno); }

}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const DTypeEntry& entry : kDTypes) {
    if (dtype == entry.dtype) return entry.name;
  }
  return "other";
}

int64_t DTypeBytes(DType dtype) {
  for (const DTypeEntry& entry : kDTypes) {
    if (dtype == entry.dtype) return entry.bytes;
  }
  return 0;
}

std::string TensorInfo::Describe() const {
  return fmt::format("{} [{}]", DTypeName(dtype), fmt::join(shape, ", "));
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view prefix, int64_t file_bytes,
                                                 const std::string& name) {
  if (prefix.size() < 8) return DataLoss(name + ": shorter than a safetensors header");
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), 8);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) ||
      static_cast<int64_t>(length) + 8 > file_bytes || length + 8 > prefix.size()) {
    return DataLoss(fmt::format("{}: header of {} bytes is longer than the file ({} bytes)", name,
                                length, file_bytes));
  }
  const Json json = Json::parse(prefix.substr(8, length), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLoss(name + ": header is not a JSON object");
  SafetensorsHeader header;
  const int64_t data_begin = static_cast<int64_t>(length) + 8;
  for (const auto& [tensor, entry] : json.items()) {
    if (tensor == "__metadata__") continue;
    KURUMA_ASSIGN_OR_RETURN(TensorInfo info, ParseTensor(entry, data_begin, name, tensor));
    header.tensors.emplace(tensor, std::move(info));
  }
  KURUMA_RETURN_IF_ERROR(CheckCoverage(&header, data_begin, name));
  return header;
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path,
                                                               ReadScope scope) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotFound(fmt::format("{}: {}", path, Errno()));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return NotFound(path + ": not a regular file");
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = path;
  file->map_bytes_ = static_cast<size_t>(info.st_size);
  if (file->map_bytes_ > 0) {
    file->map_ = mmap(nullptr, file->map_bytes_, PROT_READ, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (file->map_ == MAP_FAILED) {
    file->map_ = nullptr;
    return ResourceExhausted(fmt::format("{}: cannot be mapped: {}", path, Errno()));
  }
  const std::string_view bytes(static_cast<const char*>(file->map_), file->map_bytes_);
  KURUMA_ASSIGN_OR_RETURN(file->header_, ParseSafetensorsHeader(bytes, info.st_size, path));
  if (scope == ReadScope::kHeadersOnly) return file;
  if (info.st_size != file->header_.file_bytes) {
    return DataLoss(fmt::format("{}: has {} bytes, its header describes {}{}", path, info.st_size,
                                file->header_.file_bytes,
                                info.st_size < file->header_.file_bytes ? " (truncated)" : ""));
  }
  for (auto& [name, tensor] : file->header_.tensors) file->Place(&tensor);
  return file;
}

void SafetensorsFile::Place(TensorInfo* tensor) {
  const std::byte* mapped = static_cast<const std::byte*>(map_) + tensor->begin;
  if (tensor->begin % DTypeBytes(tensor->dtype) == 0) {
    tensor->data = mapped;
    return;
  }
  aligned_copies_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(tensor->bytes)));
  std::copy_n(mapped, tensor->bytes, aligned_copies_.back().get());
  tensor->data = aligned_copies_.back().get();
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
}

Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::vector<int64_t> sizes;
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    sizes.push_back(Elements(tensor.shape) * DTypeBytes(tensor.dtype));
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + sizes.back()}}};
    offset += sizes.back();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return InvalidArgument(fmt::format("{}: {}", path, Errno()));
  bool ok = std::fwrite(&length, 8, 1, file) == 1 &&
            std::fwrite(text.data(), 1, text.size(), file) == text.size();
  for (size_t i = 0; i < tensors.size() && ok; ++i) {
    const auto size = static_cast<size_t>(sizes[i]);
    ok = std::fwrite(tensors[i].data, 1, size, file) == size;
  }
  ok = std::fclose(file) == 0 && ok;
  if (ok) return Status();
  const Status failed = InvalidArgument(fmt::format("{}: {}", path, Errno()));
  std::remove(path.c_str());
  return failed;
}

}  // namespace kuruma::model
