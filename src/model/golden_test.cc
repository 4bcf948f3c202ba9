// The forward pass against an independent oracle (tests/golden/README.md says how its values were
// made and which tolerances apply).
#include "tests/support/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "tests/support/tiny_model.h"

namespace kuruma::model {
namespace {

using testing::Compare;
using testing::Deviation;
using testing::GoldenFile;
using testing::GoldenPath;
using testing::LoadTiny;
using testing::Tiny;

// One instance per tiny checkpoint.
class GoldenModel : public ::testing::TestWithParam<std::string> {};

// Cases of a checkpoint by kind ("prefill", "greedy").
std::vector<nlohmann::json> Cases(const std::string& checkpoint, const std::string& kind) {
  std::vector<nlohmann::json> cases;
  const nlohmann::json manifest = testing::ReadJson(GoldenPath(checkpoint + "/manifest.json"));
  for (const auto& entry : manifest["cases"]) {
    if (entry["kind"] == kind) cases.push_back(entry);
  }
  EXPECT_FALSE(cases.empty());
  return cases;
}

std::vector<int32_t> Tokens(const GoldenFile& file, const std::string& name) {
  const auto wide = file.Integers(name);
  return {wide.begin(), wide.end()};
}

// Everything a prefill case compares, of one pass over its tokens.
struct PrefillRun {
  ForwardResult result;
  std::map<int, std::vector<std::vector<int32_t>>> experts;  // layer -> row -> ids
  std::map<int, std::vector<std::vector<int32_t>>> picks;
};

PrefillRun RunPrefill(Model& model, const std::vector<int32_t>& tokens) {
  PrefillRun run;
  ForwardProbe probe;
  probe.ids = [&](std::string_view name, int layer, int64_t, std::span<const int32_t> ids) {
    auto& target = name == "expert_ids" ? run.experts[layer] : run.picks[layer];
    target.emplace_back(ids.begin(), ids.end());
  };
  SequenceState state(model.layout());
  const SequenceInput input{&state, tokens, static_cast<int64_t>(tokens.size()), LogitRows::kAll};
  const Status status = model.Forward({&input, 1}, &probe, &run.result);
  EXPECT_TRUE(status.ok()) << status.message();
  return run;
}

// Number of kept positions whose ids differ from the file's, over all layers.
int CountIdDifferences(const GoldenFile& file, const std::string& mode, const PrefillRun& run,
                       const std::vector<int64_t>& positions) {
  int differences = 0;
  for (const auto& [kind, layers] :
       {std::pair{"expert_ids", &run.experts}, std::pair{"index_picks", &run.picks}}) {
    for (const auto& [layer, rows] : *layers) {
      const std::string name = fmt::format("{}.layer{}.{}", mode, layer, kind);
      if (!file.Has(name)) {
        ADD_FAILURE() << "the oracle has no " << name;
        continue;
      }
      const auto expected = file.Integers(name);
      const size_t width = file.Shape(name)[1];
      for (size_t i = 0; i < positions.size(); ++i) {
        std::vector<int64_t> ids(rows[positions[i]].begin(), rows[positions[i]].end());
        ids.resize(width, -1);
        differences += !std::equal(ids.begin(), ids.end(), expected.begin() + i * width);
      }
    }
  }
  return differences;
}

struct PrefillScore {
  Deviation logits;
  int id_differences = 0;
  double argmax_agreement = 0;
  // Largest expected top-1 margin of a position whose argmax differs; 0 when none does.
  double widest_lost_margin = 0;
};

// Distance between the largest and the second largest value.
double Margin(std::span<const float> logits) {
  const int32_t best = ArgMax(logits);
  float second = -std::numeric_limits<float>::infinity();
  for (size_t v = 0; v < logits.size(); ++v) {
    if (static_cast<int32_t>(v) != best) second = std::max(second, logits[v]);
  }
  return logits[best] - second;
}

// Largest logit change that summation order alone was seen to cause on a checkpoint.
double OrderNoise(const std::string& checkpoint, const std::string& mode) {
  double noise = 0;
  for (const auto& entry : Cases(checkpoint, "prefill")) {
    noise = std::max(noise, entry["noise"][mode]["max_abs"].get<double>());
  }
  return noise;
}

PrefillScore ScorePrefill(Model& model, const std::string& checkpoint, const nlohmann::json& entry,
                          const std::string& mode) {
  const GoldenFile file(checkpoint + "/" + entry["file"].get<std::string>());
  const auto positions = file.Integers("positions");
  const PrefillRun run = RunPrefill(model, Tokens(file, "tokens"));
  const auto expected = file.Floats(mode + ".logits");
  const int64_t vocab = run.result.vocab;
  std::vector<float> actual;
  int agree = 0;
  PrefillScore score;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto row = run.result.Row(positions[i]);
    actual.insert(actual.end(), row.begin(), row.end());
    const std::span want(expected.data() + i * vocab, static_cast<size_t>(vocab));
    if (ArgMax(row) == ArgMax(want)) {
      ++agree;
    } else {
      score.widest_lost_margin = std::max(score.widest_lost_margin, Margin(want));
    }
  }
  score.logits = Compare(actual.data(), expected.data(), expected.size());
  score.id_differences = CountIdDifferences(file, mode, run, positions);
  score.argmax_agreement = static_cast<double>(agree) / static_cast<double>(positions.size());
  return score;
}

// Every implementation that runs here; KURUMA_TEST_KERNELS narrows it to one (plant_mistakes.py).
std::vector<std::string> AllKernels() {
  if (const char* only = std::getenv("KURUMA_TEST_KERNELS")) return {only};
  std::vector<std::string> names{"reference"};
  for (const kernels::OpTable* table : kernels::RunnableCpuOps()) names.push_back(table->name);
  return names;
}

// float32 order noise stays below 3e-5; any structural mistake is two orders above the limit.
TEST_P(GoldenModel, ExactPrefillMatchesEveryKernel) {
  const std::string checkpoint = GetParam();
  for (const std::string& kernels : AllKernels()) {
    Tiny tiny = LoadTiny(checkpoint, {.numerics = "exact", .kernels = kernels});
    double worst = 0;
    for (const auto& entry : Cases(checkpoint, "prefill")) {
      const PrefillScore score = ScorePrefill(*tiny.model, checkpoint, entry, "exact");
      EXPECT_LE(score.logits.max_abs, 2e-4) << checkpoint << " " << kernels << entry["file"];
      EXPECT_EQ(score.id_differences, 0) << checkpoint << " " << kernels << entry["file"];
      worst = std::max(worst, score.logits.max_abs);
    }
    fmt::print("{} exact {}: largest logit deviation {:.3g}\n", checkpoint, kernels, worst);
  }
}

// Same rounding points and float64 sums: equal but for last-place differences of exp/log/sqrt.
TEST_P(GoldenModel, ReleasePrefillWithReferenceKernelsIsEssentiallyBitForBit) {
  const std::string checkpoint = GetParam();
  Tiny tiny = LoadTiny(checkpoint, {.numerics = "release", .kernels = "reference"});
  for (const auto& entry : Cases(checkpoint, "prefill")) {
    const PrefillScore score = ScorePrefill(*tiny.model, checkpoint, entry, "release");
    EXPECT_LE(score.logits.max_abs, 1e-5) << checkpoint << entry["file"];
    EXPECT_EQ(score.id_differences, 0) << checkpoint << entry["file"];
    fmt::print("{} release reference {}: largest logit deviation {:.3g}\n", checkpoint,
               entry["file"].get<std::string>(), score.logits.max_abs);
  }
}

// Rounding points of the single-file reference; the oracle ran 60 random tokens.
TEST_P(GoldenModel, VendorPrefillWithReferenceKernelsIsEssentiallyBitForBit) {
  if (GetParam() == "mini") return;  // made for nano and edge
  const GoldenFile file("vendor/" + GetParam() + ".safetensors");
  Tiny tiny = LoadTiny(GetParam(), {.numerics = "vendor", .kernels = "reference"});
  const PrefillRun run = RunPrefill(*tiny.model, Tokens(file, "tokens"));
  const auto expected = file.Floats("logits");
  ASSERT_EQ(run.result.logits.size(), expected.size());
  const Deviation d = Compare(run.result.logits.data(), expected.data(), expected.size());
  EXPECT_LE(d.max_abs, 1e-5);
  fmt::print("{} vendor reference: largest logit deviation {:.3g}\n", GetParam(), d.max_abs);
}

// float32 sums flip single bf16 roundings, which random models amplify: statistical gate only.
TEST_P(GoldenModel, ReleasePrefillWithCpuKernelsIsWithinOrderNoise) {
  const std::string checkpoint = GetParam();
  for (const kernels::OpTable* table : kernels::RunnableCpuOps()) {
    Tiny tiny = LoadTiny(checkpoint, {.numerics = "release", .kernels = table->name});
    for (const auto& entry : Cases(checkpoint, "prefill")) {
      const PrefillScore score = ScorePrefill(*tiny.model, checkpoint, entry, "release");
      EXPECT_LE(score.logits.relative_rms, 0.25) << checkpoint << table->name << entry["file"];
      if (entry["length"] >= 7) {
        EXPECT_GE(score.argmax_agreement, 0.85) << checkpoint << table->name << entry["file"];
        EXPECT_LE(score.widest_lost_margin, OrderNoise(checkpoint, "release"));
      }
      fmt::print("{} release {} {}: max {:.3g} rel rms {:.3g} argmax {:.3f}\n", checkpoint,
                 table->name, entry["file"].get<std::string>(), score.logits.max_abs,
                 score.logits.relative_rms, score.argmax_agreement);
    }
  }
}

struct GreedyStep {
  std::span<const float> logits;
  const DraftResult& draft;
};

// Greedy continuation of a prompt; `check(step, ...)` sees logits and the draft after each token.
void Greedy(Model& model, const std::vector<int32_t>& prompt, int steps,
            const std::function<void(int, const GreedyStep&)>& check) {
  SequenceState state(model.layout());
  ForwardResult result;
  const auto length = static_cast<int64_t>(prompt.size());
  SequenceInput input{&state, prompt, length, LogitRows::kLast};
  ASSERT_TRUE(model.Forward({&input, 1}, nullptr, &result).ok());
  for (int step = 0; step < steps; ++step) {
    const int32_t token = ArgMax(result.Row(0));
    DraftResult draft;
    const DraftInput draft_input{&state, token};
    const auto argmax = [](int64_t, int, std::span<const float> l) { return ArgMax(l); };
    ASSERT_TRUE(model.Draft({&draft_input, 1}, argmax, &draft).ok());
    check(step, {result.Row(0), draft});
    input = {&state, {&token, 1}, 0, LogitRows::kLast};
    ASSERT_TRUE(model.Forward({&input, 1}, nullptr, &result).ok());
  }
}

void CheckGreedy(Model& model, const std::string& checkpoint, const nlohmann::json& entry,
                 const std::string& mode, double tolerance) {
  const GoldenFile file(checkpoint + "/" + entry["file"].get<std::string>());
  const auto tokens = file.Integers(mode + ".tokens");
  const auto top5 = file.Floats(mode + ".top5_logits");
  const auto drafts = file.Integers(mode + ".draft_tokens");
  const auto draft_max = file.Floats(mode + ".draft_logits_max");
  const auto confidence = file.Floats(mode + ".draft_confidence_logits");
  const int block = model.config().draft.block_size;
  double worst = 0, worst_draft = 0, worst_confidence = 0;
  Greedy(model, Tokens(file, "prompt"), static_cast<int>(tokens.size()),
         [&](int step, const GreedyStep& s) {
           const int32_t token = ArgMax(s.logits);
           ASSERT_EQ(token, tokens[step]) << checkpoint << mode << " step " << step;
           worst = std::max<double>(worst, std::fabs(s.logits[token] - top5[step * 5]));
           for (int k = 0; k < block; ++k) {
             const int at = step * block + k;
             const int32_t drafted = s.draft.tokens[k];
             EXPECT_EQ(drafted, drafts[at]) << checkpoint << mode << " step " << step << "." << k;
             const int64_t vocab = model.config().vocab;
             worst_draft = std::max<double>(
                 worst_draft, std::fabs(s.draft.logits[k * vocab + drafted] - draft_max[at]));
             worst_confidence = std::max<double>(
                 worst_confidence, std::fabs(s.draft.confidence_logits[k] - confidence[at]));
           }
         });
  EXPECT_LE(worst, tolerance);
  EXPECT_LE(worst_draft, tolerance);
  EXPECT_LE(worst_confidence, tolerance);
  fmt::print("{} {} {}: logits {:.3g} drafts {:.3g} confidences {:.3g}\n", checkpoint, mode,
             entry["file"].get<std::string>(), worst, worst_draft, worst_confidence);
}

TEST_P(GoldenModel, GreedyContinuationsAndDraftsMatch) {
  const std::string checkpoint = GetParam();
  for (const auto& entry : Cases(checkpoint, "greedy")) {
    Tiny release = LoadTiny(checkpoint, {.numerics = "release", .kernels = "reference"});
    CheckGreedy(*release.model, checkpoint, entry, "release", 1e-5);
    for (const std::string& kernels : AllKernels()) {
      Tiny exact = LoadTiny(checkpoint, {.numerics = "exact", .kernels = kernels});
      CheckGreedy(*exact.model, checkpoint, entry, "exact", 2e-4);
    }
  }
}

// Each layer fed with the oracle's own streams: sharp although end-to-end logits are not.
struct ForcedRow {
  std::vector<int64_t> experts, picks;
  float expert_margin = 0, index_margin = 0;
};

class TeacherForced {
 public:
  TeacherForced(const std::string& checkpoint, const std::string& kernels)
      : checkpoint_(checkpoint),
        file_(checkpoint + "/layers_release.safetensors"),
        tiny_(LoadTiny(checkpoint, {.numerics = "release", .kernels = kernels})) {}

  void Run() {
    ForwardProbe probe;
    probe.layer_input = [&](int layer, Rows streams, Rows pre) { Force(layer, streams, pre); };
    probe.values = [&](std::string_view name, int layer, ConstRows values) {
      if (name == "streams_out" && layer < tiny_.model->config().layers) Check(layer, values);
    };
    probe.ids = [&](std::string_view name, int layer, int64_t row, std::span<const int32_t> ids) {
      ids_[std::string(name)][layer][row] = {ids.begin(), ids.end()};
    };
    SequenceState state(tiny_.model->layout());
    const auto tokens = Tokens(file_, "tokens");
    const SequenceInput input{&state, tokens, static_cast<int64_t>(tokens.size()), LogitRows::kAll};
    ForwardResult result;
    ASSERT_TRUE(tiny_.model->Forward({&input, 1}, &probe, &result).ok());
    EXPECT_EQ(checked_layers_, tiny_.model->config().layers);
    EXPECT_LE(skipped_rows_, checked_rows_ / 20) << checkpoint_ << ": flips must be rare";
    fmt::print(
        "{} teacher-forced: worst layer rel rms {:.3g}, worst row {:.3g}, {} of {} rows "
        "with other experts or picks\n",
        checkpoint_, worst_layer_, worst_row_, skipped_rows_, checked_rows_);
  }

 private:
  std::string Name(int layer, const char* what) const {
    return fmt::format("layer{}.{}", layer, what);
  }

  static void Fill(const std::vector<float>& values, Rows rows) {
    ASSERT_EQ(static_cast<int64_t>(values.size()), rows.rows * rows.cols);
    std::copy(values.begin(), values.end(), rows.data);
  }

  void Force(int layer, Rows streams, Rows pre) {
    if (layer > 0) Fill(file_.Floats(Name(layer - 1, "ffn_pre")), pre);
    const bool stored = file_.Has(Name(layer, "streams_in"));
    Fill(file_.Floats(stored ? Name(layer, "streams_in") : Name(layer - 1, "streams_out")),
         streams);
  }

  // Whether the row chose the oracle's experts and entries; if not, by how small a margin it could.
  bool SameChoices(int layer, int64_t row) {
    const auto same = [&](const char* kind, int source) {
      const auto expected = file_.Integers(Name(source, kind));
      const size_t width = file_.Shape(Name(source, kind))[1];
      std::vector<int64_t> ids = ids_[kind][source][row];
      ids.resize(width, -1);
      return std::equal(ids.begin(), ids.end(), expected.begin() + row * width);
    };
    bool all = true;
    if (!same("expert_ids", layer)) {
      EXPECT_LE(file_.Floats(Name(layer, "expert_margin"))[row], 0.05) << layer << " row " << row;
      all = false;
    }
    const int source = tiny_.model->config().IndexSource(layer);
    if (tiny_.model->config().ratios[layer] > 0 && !same("index_picks", source)) {
      EXPECT_LE(file_.Floats(Name(source, "index_margin"))[row], 0.05) << layer << " row " << row;
      all = false;
    }
    return all;
  }

  void Check(int layer, ConstRows actual) {
    const auto expected = file_.Floats(Name(layer, "streams_out"));
    double difference = 0, size = 0;
    for (int64_t r = 0; r < actual.rows; ++r) {
      ++checked_rows_;
      if (!SameChoices(layer, r)) {
        ++skipped_rows_;
        continue;
      }
      const float* want = expected.data() + r * actual.cols;
      const Deviation d = Compare(actual.row(r), want, actual.cols);
      EXPECT_LE(d.relative_rms, 4e-2) << checkpoint_ << " layer " << layer << " row " << r;
      worst_row_ = std::max(worst_row_, d.relative_rms);
      for (int64_t c = 0; c < actual.cols; ++c) {
        difference += std::pow(static_cast<double>(actual.row(r)[c]) - want[c], 2);
        size += std::pow(static_cast<double>(want[c]), 2);
      }
    }
    const double relative = std::sqrt(difference / size);
    EXPECT_LE(relative, 1e-2) << checkpoint_ << " layer " << layer;
    worst_layer_ = std::max(worst_layer_, relative);
    ++checked_layers_;
  }

  std::string checkpoint_;
  GoldenFile file_;
  Tiny tiny_;
  std::map<std::string, std::map<int, std::map<int64_t, std::vector<int64_t>>>> ids_;
  int checked_layers_ = 0;
  int checked_rows_ = 0, skipped_rows_ = 0;
  double worst_layer_ = 0, worst_row_ = 0;
};

TEST_P(GoldenModel, ReleaseLayersTeacherForced) {
  if (GetParam() == "mini") return;  // its traces are too large for the tree
  for (const std::string& kernels : AllKernels()) TeacherForced(GetParam(), kernels).Run();
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenModel, ::testing::Values("nano", "mini", "edge"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kuruma::model
