// kuruma bench: how fast a model runs here, beside what the machine could do.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "bench_engine.h"
#include "commands.h"
#include "device/host.h"
#include "kernels/probe.h"
#include "latency.h"
#include "model_loader.h"
#include "report.h"
#include "step_cost.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

struct BenchFlags {
  ModelFlags model;
  std::vector<int64_t> prefill{128, 512};
  std::vector<int64_t> batch{1, 4, 8};
  int64_t context = 512;
  int steps = 16;
  int repeat = 3;
  bool json = false;
};

struct PrefillResult {
  int64_t tokens = 0;
  double ms = 0;
  double tokens_per_s = 0;
  double flops_per_s = 0;
};

struct DecodeResult {
  int64_t batch = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double experts_per_layer = 0;  // distinct ones of a step, mean over layers
  StepCost cost = {};            // mean step
};

struct DraftTimes {
  int drafts = 0;
  double draft_ms = 0;
  double verify_ms = 0;  // a pass of drafts + 1 rows
  double step_ms = 0;    // a plain step of one sequence, measured in turn with the others
};

struct BenchResult {
  double load_ms = 0;
  double read_bytes_per_s = 0;
  double peak_flops_per_s = 0;
  std::vector<PrefillResult> prefill;
  std::vector<DecodeResult> decode;
  std::optional<DraftTimes> draft;
  int64_t peak_resident_bytes = -1;
};

// Prompt `which` of the benchmark: the same tokens in every run.
std::vector<int32_t> MakePrompt(int64_t tokens, int64_t vocab, uint32_t which) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    const uint32_t word = Philox4x32({static_cast<uint32_t>(i), which, 0, 0}, {0xBE7C4, 0})[0];
    prompt.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocab)));
  }
  return prompt;
}

class Bench {
 public:
  Bench(const BenchFlags& flags, const LoadedModel& loaded, model::PrefillMode mode)
      : flags_(flags), loaded_(loaded), model_(*loaded.model), mode_(mode), costs_(*loaded.model) {}

  Result<BenchResult> Run() {
    result_.load_ms = loaded_.load_ms;
    for (const int64_t tokens : flags_.prefill) KURUMA_RETURN_IF_ERROR(MeasurePrefill(tokens));
    KURUMA_RETURN_IF_ERROR(PrepareSequences());
    for (const int64_t batch : flags_.batch) KURUMA_RETURN_IF_ERROR(MeasureDecode(batch));
    if (model_.config().draft.stages > 0) KURUMA_RETURN_IF_ERROR(MeasureDraft());
    result_.peak_resident_bytes = device::PeakResidentBytes();
    // Last, since the measurement's own buffer would count as memory of the model.
    result_.read_bytes_per_s = kernels::MeasureReadBandwidth(*loaded_.pool);
    result_.peak_flops_per_s = kernels::MeasureFmaPeak(*loaded_.pool);
    return result_;
  }

 private:
  Status Prefill(const std::vector<int32_t>& prompt, model::SequenceState* state, int32_t* next) {
    const auto sink = [&](int64_t, const model::ForwardResult& pass) {
      if (!pass.logits.empty()) *next = model::ArgMax(pass.Row(0));
      return Status();
    };
    return FeedPrompt(loaded_, {prompt, model::LogitRows::kLast}, state, sink);
  }

  // One pass before the measured ones reads weights from disk.
  Status MeasurePrefill(int64_t tokens) {
    const std::vector<int32_t> prompt = MakePrompt(tokens, model_.config().vocab, 0);
    std::vector<double> ms;
    for (int i = result_.prefill.empty() ? -1 : 0; i < flags_.repeat; ++i) {
      model::SequenceState state(model_.layout());
      int32_t next = 0;
      const Stopwatch watch;
      KURUMA_RETURN_IF_ERROR(Prefill(prompt, &state, &next));
      if (i >= 0) ms.push_back(watch.ms());
    }
    PrefillResult r{.tokens = tokens, .ms = Median(ms)};
    r.tokens_per_s = static_cast<double>(tokens) * 1000 / r.ms;
    r.flops_per_s = costs_.PromptFlops(tokens, mode_, flags_.model.keep_tokens) * 1000 / r.ms;
    result_.prefill.push_back(r);
    return Status();
  }

  Status PrepareSequences() {
    const int64_t count = *std::max_element(flags_.batch.begin(), flags_.batch.end());
    Progress progress("preparing sequences", count);
    for (int64_t i = 0; i < count; ++i) {
      states_.push_back(std::make_unique<model::SequenceState>(model_.layout()));
      next_.push_back(0);
      const auto prompt =
          MakePrompt(flags_.context, model_.config().vocab, static_cast<uint32_t>(i));
      KURUMA_RETURN_IF_ERROR(Prefill(prompt, states_.back().get(), &next_.back()));
      progress.Update(i + 1);
    }
    return Status();
  }

  // Appends the best token to each of the first `batch` sequences.
  Status Step(int64_t batch, const model::ForwardProbe* probe) {
    std::vector<model::SequenceInput> inputs;
    for (int64_t i = 0; i < batch; ++i) {
      inputs.push_back({states_[i].get(), {&next_[i], 1}, 0, model::LogitRows::kLast});
    }
    KURUMA_RETURN_IF_ERROR(model_.Forward(inputs, probe, &pass_));
    for (int64_t i = 0; i < batch; ++i) next_[i] = model::ArgMax(pass_.Row(i));
    return Status();
  }

  Status MeasureDecode(int64_t batch) {
    KURUMA_RETURN_IF_ERROR(Step(batch, nullptr));
    std::vector<double> step_ms;
    for (int i = 0; i < flags_.repeat; ++i) {
      const Stopwatch watch;
      for (int s = 0; s < flags_.steps; ++s) KURUMA_RETURN_IF_ERROR(Step(batch, nullptr));
      step_ms.push_back(watch.ms() / flags_.steps);
    }
    DecodeResult r{.batch = batch, .step_ms = Median(step_ms)};
    r.tokens_per_s = static_cast<double>(batch) * 1000 / r.step_ms;
    KURUMA_RETURN_IF_ERROR(CountCost(&r));
    result_.decode.push_back(r);
    return Status();
  }

  // Mean cost of a few watched steps (not timed: watching makes them slower).
  Status CountCost(DecodeResult* r) {
    constexpr int kWatched = 4;
    StepCost sum;
    int64_t distinct = 0;
    for (int s = 0; s < kWatched; ++s) {
      std::map<int, std::set<int32_t>> experts;
      model::ForwardProbe probe;
      probe.ids = [&](std::string_view name, int layer, int64_t, std::span<const int32_t> ids) {
        if (name == "expert_ids") experts[layer].insert(ids.begin(), ids.end());
      };
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < r->batch; ++i) positions.push_back(states_[i]->position());
      KURUMA_RETURN_IF_ERROR(Step(r->batch, &probe));
      std::map<int, int64_t> counts;
      for (const auto& [layer, ids] : experts) {
        counts[layer] = static_cast<int64_t>(ids.size());
        distinct += counts[layer];
      }
      const StepCost cost = costs_.Step(positions, counts);
      sum.dense_bytes += cost.dense_bytes;
      sum.expert_bytes += cost.expert_bytes;
      sum.cache_bytes += cost.cache_bytes;
      sum.flops += cost.flops;
    }
    r->cost = {sum.dense_bytes / kWatched, sum.expert_bytes / kWatched, sum.cache_bytes / kWatched,
               sum.flops / kWatched};
    r->experts_per_layer = static_cast<double>(distinct) / kWatched / model_.config().layers;
    return Status();
  }

  // Draft, verify and plain step of one sequence in turn, so that a busy moment hits all three.
  Status MeasureDraft() {
    const int drafts = model_.config().draft.block_size;
    std::vector<double> draft_ms, verify_ms, step_ms;
    const auto best = [](int64_t, int, std::span<const float> l) { return model::ArgMax(l); };
    model::SequenceState& state = *states_[0];
    model::DraftResult drafted;
    for (int i = -1; i < std::max(5, flags_.steps); ++i) {
      const model::DraftInput input{&state, next_[0]};
      const Stopwatch draft_watch;
      KURUMA_RETURN_IF_ERROR(model_.Draft({&input, 1}, best, &drafted));
      const double draft = draft_watch.ms();
      std::vector<int32_t> tokens{next_[0]};
      tokens.insert(tokens.end(), drafted.tokens.begin(), drafted.tokens.end());
      const int64_t before = state.position();
      const Stopwatch verify_watch;
      const model::SequenceInput rows{&state, tokens, 0, model::LogitRows::kAll};
      KURUMA_RETURN_IF_ERROR(model_.Forward({&rows, 1}, nullptr, &pass_));
      const double verify = verify_watch.ms();
      KURUMA_RETURN_IF_ERROR(state.Truncate(before));
      const Stopwatch step_watch;
      KURUMA_RETURN_IF_ERROR(Step(1, nullptr));
      if (i < 0) continue;
      draft_ms.push_back(draft);
      verify_ms.push_back(verify);
      step_ms.push_back(step_watch.ms());
    }
    result_.draft = {drafts, Median(draft_ms), Median(verify_ms), Median(step_ms)};
    return Status();
  }

  const BenchFlags& flags_;
  const LoadedModel& loaded_;
  model::Model& model_;
  model::PrefillMode mode_;
  CostModel costs_;
  BenchResult result_;
  std::vector<std::unique_ptr<model::SequenceState>> states_;
  std::vector<int32_t> next_;  // token each sequence continues with
  model::ForwardResult pass_;
};

Json PrefillJson(const PrefillResult& p, double peak) {
  return {{"tokens", p.tokens},
          {"ms", p.ms},
          {"tokens_per_s", p.tokens_per_s},
          {"flops_per_s", p.flops_per_s},
          {"share_of_fma_peak", p.flops_per_s / peak}};
}

double BytesPerSecond(const DecodeResult& d) {
  return static_cast<double>(d.cost.bytes()) * 1000 / d.step_ms;
}

double FlopsPerSecond(const DecodeResult& d) { return d.cost.flops * 1000 / d.step_ms; }

Json DecodeJson(const DecodeResult& d, const BenchResult& r) {
  const auto batch = static_cast<double>(d.batch);
  return {{"batch", d.batch},
          {"step_ms", d.step_ms},
          {"tokens_per_s", d.tokens_per_s},
          {"distinct_experts_per_layer", d.experts_per_layer},
          {"step_bytes",
           {{"dense", d.cost.dense_bytes},
            {"experts", d.cost.expert_bytes},
            {"caches", d.cost.cache_bytes},
            {"total", d.cost.bytes()}}},
          {"bytes_per_token", static_cast<double>(d.cost.bytes()) / batch},
          {"flops_per_token", d.cost.flops / batch},
          {"bytes_per_s", BytesPerSecond(d)},
          {"share_of_read_bandwidth", BytesPerSecond(d) / r.read_bytes_per_s},
          {"share_of_fma_peak", FlopsPerSecond(d) / r.peak_flops_per_s}};
}

Json ToJson(const BenchFlags& flags, const LoadedModel& loaded, const BenchResult& r) {
  Json out{{"model", flags.model.directory},
           {"numerics", flags.model.numerics},
           {"kernels", flags.model.kernels},
           {"prefill_mode", flags.model.prefill},
           {"chunk", flags.model.chunk},
           {"threads", loaded.pool->threads()},
           {"context", flags.context},
           {"steps", flags.steps},
           {"repeat", flags.repeat},
           {"load_ms", r.load_ms},
           {"machine",
            {{"read_bytes_per_s", r.read_bytes_per_s}, {"fma_flops_per_s", r.peak_flops_per_s}}}};
  out["prefill"] = Json::array();
  for (const PrefillResult& p : r.prefill) {
    out["prefill"].push_back(PrefillJson(p, r.peak_flops_per_s));
  }
  out["decode"] = Json::array();
  for (const DecodeResult& d : r.decode) out["decode"].push_back(DecodeJson(d, r));
  out["draft"] = nullptr;
  if (r.draft) {
    out["draft"] = {{"drafts", r.draft->drafts},
                    {"step_ms", r.draft->step_ms},
                    {"draft_ms", r.draft->draft_ms},
                    {"verify_rows", r.draft->drafts + 1},
                    {"verify_ms", r.draft->verify_ms},
                    {"draft_per_step", r.draft->draft_ms / r.draft->step_ms},
                    {"verify_per_step", r.draft->verify_ms / r.draft->step_ms}};
  }
  out["peak_resident_bytes"] = r.peak_resident_bytes;
  return out;
}

std::string ToText(const BenchFlags& flags, const LoadedModel& loaded, const BenchResult& r) {
  std::string out = fmt::format(
      "{}: numerics {}, kernels {}, prefill {}, chunk {}, {} threads; medians of {}\n"
      "load {:.0f} ms; this machine reads {:.1f} GB/s and multiplies {:.0f} GFLOP/s at most\n\n",
      flags.model.directory, flags.model.numerics, flags.model.kernels, flags.model.prefill,
      flags.model.chunk, loaded.pool->threads(), flags.repeat, r.load_ms, r.read_bytes_per_s / 1e9,
      r.peak_flops_per_s / 1e9);
  out += "prefill   tokens      tok/s         ms   GFLOP/s  of peak\n";
  for (const PrefillResult& p : r.prefill) {
    out += fmt::format("        {:>8} {:>10.1f} {:>10.1f} {:>9.1f} {:>7.0f}%\n", p.tokens,
                       p.tokens_per_s, p.ms, p.flops_per_s / 1e9,
                       100 * p.flops_per_s / r.peak_flops_per_s);
  }
  out += fmt::format(
      "\ndecode after {} tokens\n"
      "           batch      tok/s    step ms    MB/step  experts      GB/s  of peak"
      "   GFLOP/s  of peak\n",
      flags.context);
  for (const DecodeResult& d : r.decode) {
    out += fmt::format(
        "        {:>8} {:>10.1f} {:>10.2f} {:>10.1f} {:>8.1f} {:>9.2f} {:>7.0f}% {:>9.1f} "
        "{:>7.0f}%\n",
        d.batch, d.tokens_per_s, d.step_ms, static_cast<double>(d.cost.bytes()) / 1e6,
        d.experts_per_layer, BytesPerSecond(d) / 1e9, 100 * BytesPerSecond(d) / r.read_bytes_per_s,
        FlopsPerSecond(d) / 1e9, 100 * FlopsPerSecond(d) / r.peak_flops_per_s);
  }
  if (r.draft) {
    out += fmt::format(
        "\ndraft     pass for {} drafts {:.2f} ms ({:.2f} steps), verify of {} rows "
        "{:.2f} ms ({:.2f} steps), step {:.2f} ms\n",
        r.draft->drafts, r.draft->draft_ms, r.draft->draft_ms / r.draft->step_ms,
        r.draft->drafts + 1, r.draft->verify_ms, r.draft->verify_ms / r.draft->step_ms,
        r.draft->step_ms);
  }
  return out + fmt::format("\npeak memory {}, mapped weights included\n",
                           FormatBytes(r.peak_resident_bytes));
}

// Whether every measurement fits the context, before any of them runs.
Status CheckSizes(const BenchFlags& f, const model::ModelConfig& config) {
  for (const int64_t tokens : f.prefill) {
    if (tokens > config.max_positions) {
      return InvalidArgument(
          fmt::format("--prefill {}: the context is {}", tokens, config.max_positions));
    }
  }
  constexpr int64_t kExtra = 64;  // warm-up, watched steps, drafts
  const int64_t steps = static_cast<int64_t>(f.steps) * f.repeat + kExtra;
  const int64_t most =
      f.context + steps * static_cast<int64_t>(f.batch.size()) + std::max(5, f.steps) + kExtra;
  if (most > config.max_positions) {
    return InvalidArgument(
        fmt::format("--context {} and the steps need {} positions; the context "
                    "is {}",
                    f.context, most, config.max_positions));
  }
  return Status();
}

int RunBench(const BenchFlags& flags) {
  const auto loaded = LoadModel(flags.model, TokenizerUse::kOnlyForEngram);
  if (!loaded.ok()) return Fail("bench", loaded.status());
  const Status sizes = CheckSizes(flags, loaded->model->config());
  if (!sizes.ok()) return Fail("bench", sizes);
  const auto mode = model::FindPrefillMode(flags.model.prefill);
  if (!mode.ok()) return Fail("bench", mode.status());
  const Result<BenchResult> result = Bench(flags, *loaded, *mode).Run();
  if (!result.ok()) return Fail("bench", result.status());
  const std::string out =
      flags.json ? Dump(ToJson(flags, *loaded, *result)) + "\n" : ToText(flags, *loaded, *result);
  return WriteOut(out) ? kExitOk : kExitBadInput;
}

}  // namespace

void RegisterBench(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app.add_subcommand("bench", "How fast a model runs here, beside the machine's limits");
  AddModelFlags(command, &flags->model, "--prefill-mode");
  command->add_option("--prefill", flags->prefill, "Prompt lengths to measure")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str()
      ->type_name("N,N,...");
  command->add_option("--batch", flags->batch, "Numbers of sequences stepped together")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->type_name("N,N,...");
  command->add_option("--context", flags->context, "Tokens of each sequence before decoding")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--steps", flags->steps, "Decode steps per measurement")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--repeat", flags->repeat, "Measurements; their median is reported")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--json", flags->json, "One JSON object instead of a table");
  command->footer(
      "Examples:\n"
      "  kuruma bench --model DIR\n"
      "  kuruma bench --model DIR --prefill 512,4096 --batch 1 --context 4096 --json\n"
      "  kuruma bench engine --help              many requests at once\n"
      "Bytes and operations are computed from the model's shapes and the experts that the steps "
      "really chose;\nthe machine's limits are measured in the same run. Prompts are the same "
      "random tokens every time.");
  RegisterBenchEngine(command, exit_code);
  command->callback([flags, exit_code, command] {
    if (command->get_subcommands().empty()) *exit_code = RunBench(*flags);
  });
}

}  // namespace kuruma
