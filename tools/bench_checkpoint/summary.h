// What a checkpoint weighs and what one decoded token reads of it: the numbers a benchmark divides
// by.
#ifndef KURUMA_TOOLS_BENCH_CHECKPOINT_SUMMARY_H_
#define KURUMA_TOOLS_BENCH_CHECKPOINT_SUMMARY_H_

#include <string>

#include "bench_checkpoint/shape.h"

namespace kuruma::bench_checkpoint {

// One line of JSON: tensors, bytes (whole and by group), bytes read per decoded token (batch 1, no
// drafts; embedding and Engram rows counted as rows, experts as top_k of them), multiply-adds per
// token without and of the head (matrix products of weights only).
std::string SummaryJson(const Shape& shape);

}  // namespace kuruma::bench_checkpoint

#endif  // KURUMA_TOOLS_BENCH_CHECKPOINT_SUMMARY_H_
