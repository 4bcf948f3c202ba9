// What one sequence owns between steps: global KV blocks, sliding windows, compressor tails and the
// tokens themselves (DESIGN.md "State of a sequence").
#ifndef KURUMA_MODEL_STATE_H_
#define KURUMA_MODEL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/formats.h"
#include "model/config.h"
#include "model/numerics.h"

namespace kuruma::model {

// Where the entries of one KV source layer lie inside a block of kBlockTokens tokens.
struct SourceLayout {
  int layer = 0;
  int ratio = 1;
  kernels::PagedRows keys;     // index keys
  kernels::PagedRows entries;  // compressed KV
};

struct ResumePoint;

// Sizes of everything a sequence owns; fixed by config and numerics. Immutable.
struct StateLayout {
  StateLayout(const ModelConfig& config, const Numerics& numerics);

  // Layout of a KV source layer.
  const SourceLayout& Source(int layer) const;

  std::vector<SourceLayout> sources;
  int64_t block_bytes = 0;  // one block of global KV
  kernels::RowFormat window_format = kernels::RowFormat::kF32;
  int64_t window_row_bytes = 0;
  int64_t window_slots = 0;     // rows kept per layer: window + slack
  int64_t slack = 0;            // longest rollback in tokens
  int64_t rings = 0;            // backbone layers + draft stages
  int64_t tail_slots = 0;       // rows kept per compressor: largest ratio + slack
  int64_t tail_row_floats = 0;  // kv then gate
  int64_t snapshot_bytes = 0;   // SequenceState::SaveWindows
};

// Streams kept between prompt chunks for the decoder half: rows at the input of the first decoder
// layer (after its Engram), oldest first.
struct Carry {
  int64_t first_position = 0;
  std::vector<float> streams;  // [rows, streams * hidden]
  std::vector<float> pre;      // [rows, streams]
  int64_t rows = 0;
};

// Where the global KV of one sequence lies: block i holds tokens [128 i, 128 (i + 1)). Movable; one
// thread at a time.
class BlockTable {
 public:
  explicit BlockTable(int64_t block_bytes) : block_bytes_(block_bytes) {}

  // Makes room for `length` tokens: blocks of its own, unless Use gave it others, which then must
  // be enough.
  void Reserve(int64_t length);

  // From now on block i is `blocks[i]`, StateLayout::block_bytes of memory that outlive the table.
  // Blocks that other sequences share hold tokens before SequenceState::stored only. Replaces the
  // whole table; what it held so far must be in the new one.
  void Use(std::span<std::byte* const> blocks);

  // From now on block `index` is `block`: a further one, or another place for the same bytes.
  void Use(int64_t index, std::byte* block);

  std::byte* const* data() const { return table_.data(); }

 private:
  int64_t block_bytes_;
  bool owns_ = true;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::byte*> table_;
};

// State of one sequence. Written by Model only; movable; one thread at a time.
class SequenceState {
 public:
  explicit SequenceState(const StateLayout& layout);

  // Tokens processed so far; the next token's absolute position.
  int64_t position() const { return static_cast<int64_t>(tokens.size()); }

  // Forgets everything from position `length` on, as if those tokens had never been fed. Possible
  // for up to layout.slack tokens, and not back into a prompt whose decoder rows were skipped.
  // InvalidArgument names both numbers otherwise.
  Status Truncate(int64_t length);

  // Stored row of `position` in ring `ring` (a backbone layer, or layers + draft stage).
  const std::byte* WindowRow(int64_t ring, int64_t position) const;
  std::byte* MutableWindowRow(int64_t ring, int64_t position);
  // Compressor input of `position` at source number `source`: kv [head_dim], gate [head_dim].
  float* TailRow(size_t source, int64_t position);

  // Everything but tokens and blocks, as bytes of fixed size (StateLayout::snapshot_bytes). Only
  // between complete parts of a prompt, or while decoding: no streams are carried.
  std::vector<std::byte> SaveWindows() const;

  BlockTable blocks;
  std::vector<int32_t> tokens;
  int64_t stored = 0;          // global KV before this position is in the blocks and never written
  int64_t window_floor = 0;    // encoder windows never see rows before this position
  int64_t decoder_floor = 0;   // decoder windows never see rows before this position
  int64_t truncate_floor = 0;  // rollback limit: end of the last prompt with skipped rows
  Carry carry;

 private:
  friend SequenceState ResumeSequence(const StateLayout& layout, std::span<const int32_t> tokens,
                                      std::span<std::byte* const> blocks, const ResumePoint& point);

  const StateLayout* layout_;
  std::vector<std::byte> windows_;
  std::vector<float> tails_;
};

// Where a sequence goes on.
struct ResumePoint {
  int64_t position = 0;
  // SaveWindows of a sequence with the same tokens at that position. Empty: windows are rebuilt by
  // feeding the tokens from `position` on, which must be Model::ReplayFrom; rows before the end of
  // what is stored have no meaning of their own then.
  std::span<const std::byte> windows = {};
};

// A sequence that begins with `tokens`, all of which have their global KV in `blocks` (a multiple
// of kBlockTokens; see BlockTable::Use), and goes on at `point`, not behind them: what is fed of
// them again writes no global KV.
SequenceState ResumeSequence(const StateLayout& layout, std::span<const int32_t> tokens,
                             std::span<std::byte* const> blocks, const ResumePoint& point);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_STATE_H_
