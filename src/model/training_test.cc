// The forward pass against the PyTorch model that the bundled checkpoint was trained with: a third
// implementation, fed with trained weights. tests/golden/tiny says how its values were made.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "model/model.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model.h"

namespace kuruma::model {
namespace {

using testing::Compare;
using testing::Deviation;
using testing::GoldenFile;
using testing::OrThrow;

// Both compute in float32 from the same rounded weights and differ in the order of sums.
constexpr double kLayerTolerance = 2e-5;  // relative rms of a row that leaves a layer
constexpr double kLogitTolerance = 1e-4;  // absolute, layers not forced

class Trained {
 public:
  explicit Trained(const std::string& kernels) : file_("tiny/layers.safetensors"), pool_(1) {
    ModelOptions options;
    options.numerics = OrThrow(FindNumerics("exact"));
    options.ops = OrThrow(kernels::FindOps(kernels));
    options.pool = &pool_;
    options.token_classes = Integers("token_classes");
    model_ =
        OrThrow(Model::Load(std::string(KURUMA_SOURCE_DIR) + "/models/tiny", std::move(options)));
  }

  // Feeds every layer with what entered PyTorch's and compares what leaves it.
  double WorstForcedRow() {
    ForwardProbe probe;
    double worst = 0;
    probe.layer_input = [&](int layer, Rows streams, Rows pre) { Force(layer, streams, pre); };
    probe.values = [&](std::string_view name, int layer, ConstRows values) {
      if (layer < 0 || layer >= model_->config().layers) return;
      if (name == "streams_out") worst = std::max(worst, WorstRow(layer, "streams_out", values));
      if (name == "ffn_pre") worst = std::max(worst, WorstRow(layer, "pre_out", values));
      compared_ += name == "streams_out" || name == "ffn_pre" ? 1 : 0;
    };
    Run(&probe);
    EXPECT_EQ(compared_, 2 * model_->config().layers);
    return worst;
  }

  // Largest difference of the last logits, nothing forced.
  double LogitDeviation() {
    const ForwardResult result = Run(nullptr);
    const auto expected = file_.Floats("last_logits");
    const int64_t rows = static_cast<int64_t>(expected.size()) / result.vocab;
    const int64_t first = result.first_row.back() - rows;
    return Compare(result.Row(first).data(), expected.data(), expected.size()).max_abs;
  }

 private:
  std::vector<int32_t> Integers(const std::string& name) const {
    const auto wide = file_.Integers(name);
    return {wide.begin(), wide.end()};
  }

  ForwardResult Run(const ForwardProbe* probe) {
    const std::vector<int32_t> tokens = Integers("tokens");
    SequenceState state(model_->layout());
    const SequenceInput input{&state, tokens, static_cast<int64_t>(tokens.size()), LogitRows::kAll};
    ForwardResult result;
    const Status status = model_->Forward({&input, 1}, probe, &result);
    EXPECT_TRUE(status.ok()) << status.message();
    return result;
  }

  void Fill(const std::string& name, Rows rows) const {
    const auto values = file_.Floats(name);
    ASSERT_EQ(static_cast<int64_t>(values.size()), rows.rows * rows.cols) << name;
    std::copy(values.begin(), values.end(), rows.data);
  }

  void Force(int layer, Rows streams, Rows pre) const {
    const std::string before = fmt::format("layer{}.", layer - 1);
    const std::string own = fmt::format("layer{}.streams_in", layer);
    Fill(file_.Has(own) ? own : before + "streams_out", streams);
    if (layer > 0) Fill(before + "pre_out", pre);
  }

  double WorstRow(int layer, const char* name, ConstRows actual) const {
    const auto expected = file_.Floats(fmt::format("layer{}.{}", layer, name));
    EXPECT_EQ(static_cast<int64_t>(expected.size()), actual.rows * actual.cols) << layer << name;
    double worst = 0;
    for (int64_t r = 0; r < actual.rows; ++r) {
      const Deviation d = Compare(actual.row(r), expected.data() + r * actual.cols, actual.cols);
      EXPECT_LE(d.relative_rms, kLayerTolerance)
          << "layer " << layer << " row " << r << " " << name;
      worst = std::max(worst, d.relative_rms);
    }
    return worst;
  }

  GoldenFile file_;
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  int compared_ = 0;
};

TEST(Training, EveryLayerAgreesWithPyTorch) {
  for (const char* kernels : {"reference", "cpu"}) {
    const double worst = Trained(kernels).WorstForcedRow();
    fmt::print("PyTorch, layers forced, {}: worst row {:.3g} relative rms\n", kernels, worst);
  }
}

TEST(Training, LogitsAgreeWithPyTorch) {
  for (const char* kernels : {"reference", "cpu"}) {
    const double worst = Trained(kernels).LogitDeviation();
    EXPECT_LE(worst, kLogitTolerance) << kernels;
    fmt::print("PyTorch, logits, {}: {:.3g}\n", kernels, worst);
  }
}

}  // namespace
}  // namespace kuruma::model
