#include "model/forward/batch.h"

#include <algorithm>
#include <cstring>

namespace kuruma::model {
namespace {

// Old row numbers that stay, in order.
std::vector<int64_t> RowsKept(const std::vector<Segment>& segments,
                              std::span<const int64_t> keep_from) {
  std::vector<int64_t> kept;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const int64_t drop = std::clamp<int64_t>(keep_from[i] - s.first_position, 0, s.rows);
    for (int64_t row = drop; row < s.rows; ++row) kept.push_back(s.begin + row);
  }
  return kept;
}

void Compact(const std::vector<int64_t>& kept, Rows matrix) {
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == static_cast<int64_t>(i)) continue;
    std::memmove(matrix.row(i), matrix.row(kept[i]), matrix.cols * sizeof(float));
  }
}

void Compact(const std::vector<int64_t>& kept, OwnedRows* matrix) {
  Compact(kept, matrix->view());
  matrix->data.resize(kept.size() * matrix->cols);
}

template <typename T>
void Compact(const std::vector<int64_t>& kept, std::vector<T>* items) {
  if (items->empty()) return;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] != static_cast<int64_t>(i)) (*items)[i] = std::move((*items)[kept[i]]);
  }
  items->resize(kept.size());
}

}  // namespace

void Batch::DropFront(std::span<const int64_t> keep_from, Rows* extra) {
  const std::vector<int64_t> kept = RowsKept(segments, keep_from);
  if (static_cast<int64_t>(kept.size()) == rows()) return;
  Compact(kept, *extra);
  extra->rows = static_cast<int64_t>(kept.size());
  for (OwnedRows* matrix : {&streams, &pre, &cos[0], &cos[1], &sin[0], &sin[1]}) {
    Compact(kept, matrix);
  }
  Compact(kept, &positions);
  Compact(kept, &picks);
  Compact(kept, &pools);
  int64_t begin = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    Segment& s = segments[i];
    const int64_t drop = std::clamp<int64_t>(keep_from[i] - s.first_position, 0, s.rows);
    s.begin = begin;
    s.rows -= drop;
    s.first_position += drop;
    begin += s.rows;
  }
}

}  // namespace kuruma::model
