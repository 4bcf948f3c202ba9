#include "model/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kuruma::model {

using kernels::RowBytes;
using kernels::RowFormat;

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
}

const SourceLayout& StateLayout::Source(int layer) const {
  const auto it = std::find_if(sources.begin(), sources.end(),
                               [&](const SourceLayout& s) { return s.layer == layer; });
  KURUMA_CHECK(it != sources.end());
  return *it;
}

SequenceState::SequenceState(const StateLayout& layout)
    : layout_(&layout),
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

void SequenceState::ReserveBlocks(int64_t length) {
  const auto needed = static_cast<size_t>((length + kBlockTokens - 1) / kBlockTokens);
  KURUMA_CHECK(owns_blocks_ || needed <= block_table_.size());
  while (owns_blocks_ && block_memory_.size() < needed) {
    block_memory_.push_back(std::make_unique<std::byte[]>(layout_->block_bytes));
    block_table_.push_back(block_memory_.back().get());
  }
}

void SequenceState::UseBlocks(std::span<std::byte* const> blocks) {
  owns_blocks_ = false;
  block_memory_.clear();
  block_table_.assign(blocks.begin(), blocks.end());
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

SequenceState ResumeSequence(const StateLayout& layout, std::span<const int32_t> tokens,
                             std::span<std::byte* const> blocks, int64_t replay_from) {
  const auto stored = static_cast<int64_t>(tokens.size());
  KURUMA_CHECK(stored % kBlockTokens == 0 && replay_from >= 0 && replay_from <= stored);
  SequenceState state(layout);
  state.UseBlocks(blocks);
  const auto before = tokens.first(replay_from);
  state.tokens.assign(before.begin(), before.end());
  state.stored = stored;
  state.window_floor = state.decoder_floor = state.truncate_floor = replay_from;
  return state;
}

}  // namespace kuruma::model
