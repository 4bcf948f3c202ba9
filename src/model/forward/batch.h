// The rows of a pass: which sequence and position each row belongs to, and its residual streams.
#ifndef KURUMA_MODEL_FORWARD_BATCH_H_
#define KURUMA_MODEL_FORWARD_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/view.h"
#include "kernels/select.h"
#include "model/state.h"

namespace kuruma::model {

// Consecutive rows of one sequence: row begin + i is position first_position + i.
struct Segment {
  size_t input = 0;  // number of the SequenceInput / DraftInput
  SequenceState* state = nullptr;
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
};

// A float matrix that owns its memory and can lose rows.
struct OwnedRows {
  std::vector<float> data;
  int64_t cols = 0;

  void Resize(int64_t rows, int64_t new_cols) {
    cols = new_cols;
    data.resize(rows * new_cols);
  }
  Rows view() {
    return {data.data(), cols == 0 ? 0 : static_cast<int64_t>(data.size()) / cols, cols};
  }
};

struct Batch {
  std::vector<Segment> segments;
  std::vector<int64_t> positions;             // [rows]
  OwnedRows streams;                          // [rows, streams * hidden]
  OwnedRows pre;                              // [rows, streams]
  OwnedRows cos[2], sin[2];                   // [rows, rope_dim / 2]; [0] window, [1] compressed
  std::vector<std::vector<int32_t>> picks;    // per row: selected entries, ascending
  std::vector<kernels::CandidatePool> pools;  // per row, once the candidate source has run

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }

  // Drops the rows of segment i before position `keep_from[i]`, everywhere; also from `extra`
  // (a matrix with one row per batch row), whose row count is updated.
  void DropFront(std::span<const int64_t> keep_from, Rows* extra);
};

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_FORWARD_BATCH_H_
