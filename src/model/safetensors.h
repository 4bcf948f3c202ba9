// Read-only access to safetensors files: a JSON header followed by raw tensors, mapped into memory.
// Source: safetensors format description (8-byte little-endian header length, JSON header, data).
#ifndef KURUMA_MODEL_SAFETENSORS_H_
#define KURUMA_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kuruma::model {

enum class DType { kF32, kF16, kBf16, kF8E4m3, kF8E8m0, kI8, kU8, kI32, kI64, kF64, kBool, kOther };

// Spelling in a header, e.g. "F8_E4M3".
std::string_view DTypeName(DType dtype);
// Bytes of one element; 0 for kOther.
int64_t DTypeBytes(DType dtype);

struct TensorInfo {
  DType dtype = DType::kOther;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the file
  int64_t bytes = 0;
  const std::byte* data = nullptr;  // null when only headers were opened; else aligned

  // "F8_E4M3 [1280, 5120]".
  std::string Describe() const;
};

// One parsed header: tensors by name, sizes checked, data section covered exactly once.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  int64_t file_bytes = 0;  // header and data
};

// Parses a header from the first bytes of a file. `prefix` holds at least 8 bytes plus the header
// if the file has that many; `file_bytes` is the real file size. kDataLoss names file, tensor and
// fault: header longer than the file, bad JSON, unknown dtype, size that does not match shape and
// dtype, ranges that overlap or leave a gap. `name` stands for the file. Any thread.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view prefix, int64_t file_bytes,
                                                 const std::string& name);

// Whether tensor bytes are read: kHeadersOnly serves inspection of a checkpoint whose shards need
// not be there beyond their headers; data pointers stay null.
enum class ReadScope { kWhole, kHeadersOnly };

// One file, mapped read-only for the life of the object. The format does not promise aligned
// tensors: the few that are not aligned to their element size are copied, so every data pointer is.
// Immutable, any thread.
class SafetensorsFile {
 public:
  static Result<std::unique_ptr<SafetensorsFile>> Open(const std::string& path, ReadScope scope);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

 private:
  SafetensorsFile() = default;
  void Place(TensorInfo* tensor);

  std::string path_;
  std::vector<std::unique_ptr<std::byte[]>> aligned_copies_;
  SafetensorsHeader header_;
  void* map_ = nullptr;
  size_t map_bytes_ = 0;
};

// A tensor to be written.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // shape x dtype bytes
};

// Writes a safetensors file with the tensors in the order given. kInvalidArgument when the file
// cannot be written; a partial file is removed.
Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_SAFETENSORS_H_
