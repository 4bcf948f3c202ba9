#include "model/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kuruma::model {

using kernels::RowBytes;
using kernels::RowFormat;

namespace {

// Last in a snapshot, behind windows and compressor tails.
struct Floors {
  int64_t window;
  int64_t decoder;
};

}  // namespace

StateLayout::StateLayout(const ModelConfig& config, const Numerics& numerics) {
  const bool packed = numerics.quantize_caches;
  const RowFormat key_format = packed ? RowFormat::kFp4E8m0 : RowFormat::kF32;
  const RowFormat entry_format = packed ? RowFormat::kFp4E4m3 : RowFormat::kF32;
  int64_t offset = 0;
  int largest_ratio = 0;
  for (int layer : config.kv_sources) {
    const int ratio = config.ratios[layer];
    const int64_t rows = kBlockTokens / ratio;
    SourceLayout source{.layer = layer, .ratio = ratio, .keys = {}, .entries = {}};
    source.keys = {rows, offset, RowBytes(key_format, config.index_dim), key_format};
    offset += rows * source.keys.row_bytes;
    source.entries = {rows, offset, RowBytes(entry_format, config.head_dim), entry_format};
    offset += rows * source.entries.row_bytes;
    largest_ratio = std::max(largest_ratio, ratio);
    sources.push_back(source);
  }
  block_bytes = offset;
  window_format = packed ? RowFormat::kFp8 : RowFormat::kF32;
  window_row_bytes = RowBytes(window_format, config.head_dim);
  slack = config.draft.block_size + 1;
  window_slots = config.window + slack;
  rings = config.layers + config.draft.stages;
  tail_slots = largest_ratio + slack;
  tail_row_floats = 2 * config.head_dim;
  snapshot_bytes = rings * window_slots * window_row_bytes +
                   static_cast<int64_t>(sources.size()) * tail_slots * tail_row_floats *
                       static_cast<int64_t>(sizeof(float)) +
                   static_cast<int64_t>(sizeof(Floors));
}

const SourceLayout& StateLayout::Source(int layer) const {
  const auto it = std::find_if(sources.begin(), sources.end(),
                               [&](const SourceLayout& s) { return s.layer == layer; });
  KURUMA_CHECK(it != sources.end());
  return *it;
}

SequenceState::SequenceState(const StateLayout& layout)
    : blocks(layout.block_bytes),
      layout_(&layout),
      windows_(layout.rings * layout.window_slots * layout.window_row_bytes),
      tails_(layout.sources.size() * layout.tail_slots * layout.tail_row_floats) {}

Status SequenceState::Truncate(int64_t length) {
  const int64_t least = std::max({position() - layout_->slack, truncate_floor, int64_t{0}});
  if (length > position() || length < least || carry.rows > 0) {
    return InvalidArgument(
        fmt::format("cannot roll a sequence of {} tokens back to {}; the shortest possible is {}",
                    position(), length, least));
  }
  tokens.resize(length);
  return Status();
}

void BlockTable::Reserve(int64_t length) {
  const auto needed = static_cast<size_t>((length + kBlockTokens - 1) / kBlockTokens);
  KURUMA_CHECK(owns_ || needed <= table_.size());
  while (owns_ && memory_.size() < needed) {
    memory_.push_back(std::make_unique<std::byte[]>(block_bytes_));
    table_.push_back(memory_.back().get());
  }
}

void BlockTable::Use(std::span<std::byte* const> blocks) {
  owns_ = false;
  memory_.clear();
  table_.assign(blocks.begin(), blocks.end());
}

void BlockTable::Use(int64_t index, std::byte* block) {
  KURUMA_CHECK(!owns_ || table_.empty());
  owns_ = false;
  const auto at = static_cast<size_t>(index);
  KURUMA_CHECK(at <= table_.size());
  if (at == table_.size()) table_.push_back(nullptr);
  table_[at] = block;
}

const std::byte* SequenceState::WindowRow(int64_t ring, int64_t position) const {
  const int64_t slot = ring * layout_->window_slots + position % layout_->window_slots;
  return windows_.data() + slot * layout_->window_row_bytes;
}

std::byte* SequenceState::MutableWindowRow(int64_t ring, int64_t position) {
  return const_cast<std::byte*>(WindowRow(ring, position));
}

float* SequenceState::TailRow(size_t source, int64_t position) {
  const int64_t slot =
      static_cast<int64_t>(source) * layout_->tail_slots + position % layout_->tail_slots;
  return tails_.data() + slot * layout_->tail_row_floats;
}

std::vector<std::byte> SequenceState::SaveWindows() const {
  KURUMA_CHECK(carry.rows == 0);
  std::vector<std::byte> saved(static_cast<size_t>(layout_->snapshot_bytes));
  const Floors floors{window_floor, decoder_floor};
  const size_t tail_bytes = tails_.size() * sizeof(float);
  std::memcpy(saved.data(), windows_.data(), windows_.size());
  if (tail_bytes > 0) std::memcpy(saved.data() + windows_.size(), tails_.data(), tail_bytes);
  std::memcpy(saved.data() + windows_.size() + tail_bytes, &floors, sizeof floors);
  return saved;
}

SequenceState ResumeSequence(const StateLayout& layout, std::span<const int32_t> tokens,
                             std::span<std::byte* const> blocks, const ResumePoint& point) {
  const auto stored = static_cast<int64_t>(tokens.size());
  KURUMA_CHECK(stored % kBlockTokens == 0 && point.position >= 0 && point.position <= stored);
  SequenceState state(layout);
  state.blocks.Use(blocks);
  const auto before = tokens.first(static_cast<size_t>(point.position));
  state.tokens.assign(before.begin(), before.end());
  state.stored = stored;
  state.window_floor = state.decoder_floor = state.truncate_floor = point.position;
  if (point.windows.empty()) return state;
  KURUMA_CHECK(point.windows.size() == static_cast<size_t>(layout.snapshot_bytes));
  const std::byte* from = point.windows.data();
  std::memcpy(state.windows_.data(), from, state.windows_.size());
  from += state.windows_.size();
  const size_t tail_bytes = state.tails_.size() * sizeof(float);
  if (tail_bytes > 0) std::memcpy(state.tails_.data(), from, tail_bytes);
  Floors floors;
  std::memcpy(&floors, from + tail_bytes, sizeof floors);
  state.window_floor = floors.window;
  state.decoder_floor = floors.decoder;
  return state;
}

}  // namespace kuruma::model
