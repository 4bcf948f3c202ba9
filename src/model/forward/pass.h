// One forward pass in layer order: encoder half, global KV of the first decoder layer, decoder half
// on the rows that the prefill mode asks for, logits.
#ifndef KURUMA_MODEL_FORWARD_PASS_H_
#define KURUMA_MODEL_FORWARD_PASS_H_

#include <span>
#include <vector>

#include "model/forward/context.h"

namespace kuruma::model {

// Constants of the prefill mode.
struct PrefillPlan {
  PrefillMode mode = PrefillMode::kExact;
  int64_t keep_tokens = 0;  // kCompact
};

class Pass {
 public:
  // `hashes` has one entry per Engram layer. Everything must outlive the pass.
  Pass(const Context& ctx, const PrefillPlan& plan, std::span<const EngramHash> hashes,
       std::span<const int32_t> token_classes);

  // Inputs are valid (Model::Forward checked them). Appends tokens, advances states.
  void Run(std::span<const SequenceInput> inputs, ForwardResult* result);

 private:
  // First position whose row input `i` needs at the entrance (window rows) of decoder layer
  // number `d` (0 = first); d = number of decoder layers: rows that leave the last layer.
  int64_t NeededFrom(size_t i, int d) const;
  // First position that a decoder row at `position` of input `i` may see in its window.
  int64_t DecoderWindowBegin(size_t i, int64_t position) const;
  // Whether the decoder half computes every row of input `i` at once (decoding, or no row is
  // saved).
  bool RunsAllRows(size_t i) const;
  // Whether the decoder half runs for input `i` in this pass at all.
  bool DecodesNow(size_t i) const;

  Batch Embed() const;
  void EnterLayer(int layer, Batch* batch) const;
  // Attention half and feed-forward half of a backbone layer. `keep_from`: rows that go on after
  // the window rows are made (null: all).
  void Layer(int layer, bool compress, const std::vector<int64_t>* keep_from, Batch* batch);
  WindowLists Windows(int layer, const WindowChunk& chunk, const Batch& batch) const;
  // Splits off what waits for the prompt's last chunk; returns the rows the decoder runs on.
  Batch TakeDecoderRows(Batch batch) const;
  // Notes inputs whose streams are no longer finite after a layer.
  void LookForBroken(int layer, Batch* batch);
  void KeepForDraft(int layer, Batch* batch);
  void ExtendDraftWindows();
  void Logits(const Batch& batch, ForwardResult* result) const;

  const Context& ctx_;
  const PrefillPlan& plan_;
  std::span<const EngramHash> hashes_;
  std::span<const int32_t> token_classes_;
  std::span<const SequenceInput> inputs_;
  // Stream means at the input of the draft's target layers, with the rows they belong to.
  struct Kept {
    std::vector<Segment> segments;
    OwnedRows means;  // [rows, hidden]
  };
  std::vector<Kept> kept_;
  std::vector<int> broken_layer_;  // ForwardResult::broken_layer
  std::vector<char> broken_rows_;  // scratch of LookForBroken
};

// Proposes a block of drafts per input; states are read only.
void DraftPass(const Context& ctx, std::span<const DraftInput> inputs, const DraftChooser& choose,
               DraftResult* result);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_FORWARD_PASS_H_
