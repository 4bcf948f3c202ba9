// What every part of a pass shares: the loaded model, the kernels, scratch memory, and the small
// compositions (quantise + product, norm, rotation) that the layers are written with.
#ifndef KURUMA_MODEL_FORWARD_CONTEXT_H_
#define KURUMA_MODEL_FORWARD_CONTEXT_H_

#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "model/engram_hash.h"
#include "model/forward/batch.h"
#include "model/forward/workspace.h"
#include "model/model.h"

namespace kuruma::model {

// Which rotation table a layer uses: layers with a compressed branch use theta and YaRN of the
// compressed kind for everything they rotate.
enum class RopeKind { kWindow = 0, kCompressed = 1 };

// Reports intermediates to a probe, if there is one.
struct Tracer {
  const ForwardProbe* probe = nullptr;

  bool on() const { return probe != nullptr && probe->values; }
  void Values(std::string_view name, int layer, ConstRows values) const {
    if (on()) probe->values(name, layer, values);
  }
  void Ids(std::string_view name, int layer, int64_t row, std::span<const int32_t> ids) const {
    if (probe != nullptr && probe->ids) probe->ids(name, layer, row, ids);
  }
};

struct Context {
  const ModelConfig& config;
  const ModelWeights& weights;
  const StateLayout& layout;
  const Numerics& numerics;
  const kernels::OpTable& ops;
  ThreadPool& pool;
  Workspace& workspace;
  const std::vector<float>* frequencies = nullptr;  // [2], by RopeKind
  Tracer trace;

  RopeKind Kind(int layer) const {
    return config.ratios[layer] > 0 ? RopeKind::kCompressed : RopeKind::kWindow;
  }

  // x as quantised products want it: an FP8 round trip in scratch memory, or x itself when the
  // numerics quantise nothing. Valid until the caller's workspace scope ends.
  ConstRows Quantized(ConstRows x) const;

  // y = x W^T, rounded to bfloat16 values in bf16 numerics. Inputs of quantised weights must come
  // from Quantized().
  void MatMul(std::initializer_list<kernels::MatMulTask> tasks) const;
  kernels::MatMulTask Linear(ConstRows x, const Matrix& weight, Rows y) const {
    return {weight, x, y, numerics.bf16};
  }

  // RMSNorm in place.
  void Norm(Rows x, const uint16_t* weight) const;

  // Rotates the tails of `heads` heads per row by the batch's positions, in place.
  void Rotate(const Batch& batch, RopeKind kind, int64_t heads, bool inverse, Rows x) const;

  // u = norm(sum_i pre[i] * streams[i]), in scratch memory.
  Rows CollapseAndNorm(ConstRows streams, ConstRows pre, const uint16_t* norm) const;
};

// Rows a query may attend in the sliding window, as pointers to stored rows, per batch row.
using WindowLists = std::vector<std::vector<const std::byte*>>;

// The stored window rows of a pass's own tokens; segment geometry as it was when they were made.
struct WindowChunk {
  std::vector<Segment> segments;
  std::vector<std::byte> rows;  // [batch rows, window_row_bytes]
  int64_t row_bytes = 0;

  const std::byte* row(int64_t r) const { return rows.data() + r * row_bytes; }
};

// forward/attention.cc -------------------------------------------------------------------------

// Window rows of u: wkv, norm, rotation, storage format.
WindowChunk MakeWindowRows(const Context& ctx, const AttentionWeights& w, RopeKind kind,
                           const Batch& batch, ConstRows u);

// Copies the newest rows of a chunk into ring `ring` of each sequence.
void CommitWindowRows(const Context& ctx, const WindowChunk& chunk, int64_t ring);

struct Queries {
  Rows low;  // [rows, q_lora], normed; the indexer reads it too
  ConstRows low_quantized;
  Rows q;  // [rows, heads * head_dim], rotated
};
Queries MakeQueries(const Context& ctx, const AttentionWeights& w, RopeKind kind,
                    const Batch& batch, ConstRows u);

// Sparse attention, inverse rotation and output projection; y [rows, hidden]. `entries` is null for
// layers without a compressed branch, else the layout of the KV source whose rows batch.picks name.
struct AttentionInput {
  const AttentionWeights* weights = nullptr;
  RopeKind kind = RopeKind::kWindow;
  int layer = -1;  // for traces
  const kernels::PagedRows* entries = nullptr;
  const WindowLists* windows = nullptr;
};
void AttendAndProject(const Context& ctx, const AttentionInput& in, const Batch& batch, ConstRows q,
                      Rows y);

// forward/compressed.cc ------------------------------------------------------------------------

// Finishes the groups completed by these rows: compressed entries and index keys of source `layer`
// go to the sequences' blocks, unfinished inputs to their tails.
void Compress(const Context& ctx, int layer, const Batch& batch, ConstRows u);

// Fills batch->picks (and pools at the candidate source) for index source `layer`.
void Select(const Context& ctx, int layer, const Queries& queries, ConstRows u, Batch* batch);

// forward/feed_forward.cc ----------------------------------------------------------------------

// Mixture of experts with its shared expert; y [rows, hidden].
void MixtureOfExperts(const Context& ctx, const MoeWeights& w, int layer, ConstRows u, Rows y);

// Adds the Engram of `layer` to the streams of all rows. `token_classes` [vocab].
void ApplyEngram(const Context& ctx, int layer, const EngramHash& hash,
                 std::span<const int32_t> token_classes, Batch* batch);

// forward/layers.cc ----------------------------------------------------------------------------

// Angles of batch.positions for both rotation tables.
void FillAngles(const Context& ctx, Batch* batch);

// Entrance of a pass: `streams` equal copies of each row's token embedding, pre = [1, 0, ...],
// angles. One token per row of batch->positions.
void EmbedTokens(const Context& ctx, std::span<const int32_t> tokens, Batch* batch);

// Coefficients of one hyper-connection site from the streams before its sublayer, in scratch
// memory.
kernels::HcMix MixCoefficients(const Context& ctx, const HcWeights& w, ConstRows streams);

// Second half of a block: coefficients, collapse with the attention site's pre, experts, expand;
// leaves the FFN site's pre in batch->pre.
void FeedForwardHalf(const Context& ctx, const LayerWeights& w, int layer, ConstRows attention_pre,
                     Batch* batch);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_FORWARD_CONTEXT_H_
