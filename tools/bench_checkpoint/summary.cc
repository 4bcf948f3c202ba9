#include "bench_checkpoint/summary.h"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench_checkpoint/inventory.h"

namespace kuruma::bench_checkpoint {
namespace {

// Bytes of `tensor` that one decoded token reads.
int64_t BytesRead(const Tensor& tensor, const model::ModelConfig& c) {
  switch (tensor.group) {
    case Group::kDraft:
    case Group::kVision:
      return 0;
    case Group::kEmbedding:
      return tensor.bytes() / tensor.shape[0];
    case Group::kEngramTable:
      return tensor.bytes() / tensor.shape[0] * c.engram.rows_per_token();
    default:
      return tensor.bytes();
  }
}

// Multiply-adds of a product with `tensor`; nothing for what is not a matrix of weights.
int64_t MultiplyAdds(const Tensor& tensor) {
  const bool product = tensor.group != Group::kNorm && tensor.group != Group::kEmbedding &&
                       tensor.group != Group::kEngramTable && tensor.group != Group::kDraft &&
                       tensor.group != Group::kVision;
  if (!product || tensor.shape.size() != 2 || tensor.dtype == Dtype::kE8m0) return 0;
  return tensor.elements() * (tensor.dtype == Dtype::kFp4 ? 2 : 1);
}

}  // namespace

std::string SummaryJson(const Shape& shape) {
  const model::ModelConfig& c = shape.config;
  const std::vector<Unit> units = MakeInventory(shape);
  std::array<int64_t, kGroups> bytes{}, read{}, products{};
  for (const Unit& unit : units) {
    for (const Tensor& tensor : unit) {
      const auto group = static_cast<size_t>(tensor.group);
      bytes[group] += tensor.bytes();
      read[group] += BytesRead(tensor, c);
      products[group] += MultiplyAdds(tensor);
    }
  }
  const auto experts = static_cast<size_t>(Group::kExperts);
  read[experts] = read[experts] / c.experts * c.top_k;
  products[experts] = products[experts] / c.experts * c.top_k;

  nlohmann::ordered_json by_group, read_by_group;
  int64_t all_read = 0, all_products = 0;
  for (int group = 0; group < kGroups; ++group) {
    by_group[GroupName(static_cast<Group>(group))] = bytes[group];
    read_by_group[GroupName(static_cast<Group>(group))] = read[group];
    all_read += read[group];
    all_products += products[group];
  }
  const int64_t head = products[static_cast<size_t>(Group::kHead)];
  const Totals totals = Count(units);
  return nlohmann::ordered_json{{"tensors", totals.tensors},
                                {"bytes", totals.bytes},
                                {"bytes_by_group", by_group},
                                {"read_bytes_per_token", all_read},
                                {"read_bytes_by_group", read_by_group},
                                {"multiply_adds_per_token", all_products - head},
                                {"head_multiply_adds", head}}
      .dump();
}

}  // namespace kuruma::bench_checkpoint
