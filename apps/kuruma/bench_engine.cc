#include "bench_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/host.h"
#include "engine_flags.h"
#include "inputs.h"
#include "latency.h"
#include "load.h"
#include "model_loader.h"
#include "plot.h"
#include "report.h"
#include "workload.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCommand = "bench engine";

struct BenchEngineFlags {
  ModelFlags model;
  EngineFlags engine;
  WorkloadOptions workload;
  std::string trace_path;  // instead of what `workload` says, but for the seed
  std::vector<int64_t> concurrency{16};
  int64_t warmup = 1;
  int repeat = 1;
  bool json = false;
  std::string plot_path;
};

// One run of the workload.
struct Run {
  LoadResult load;
  LatencySummary latency;
  double peak_resident_bytes = 0;

  double requests() const { return static_cast<double>(load.times.size()); }
  double input() const { return static_cast<double>(load.prompt_tokens); }
  double output() const { return static_cast<double>(load.output_tokens); }
  double steps() const { return static_cast<double>(load.counts.steps); }
  double PerSecond(double count) const { return count / load.duration_s; }
};

// The runs of one concurrency.
struct Row {
  int64_t concurrency = 0;
  std::vector<Run> runs;
};

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// A number of a run, how it is called and shown: JSON and tables are made from these lists. NaN
// where there was nothing to measure.
struct Metric {
  const char* key;   // in JSON
  const char* head;  // in the tables
  double (*of)(const Run&);
  int decimals = 1;
  double scale = 1;  // of the tables
};

double TokensPerUser(const Run& r) { return 1000 / r.latency.tpot_p50_ms; }
double OutputPerSecond(const Run& r) { return r.PerSecond(r.output()); }

const std::vector<Metric> kThroughput{
    {"requests", "requests", [](const Run& r) { return r.requests(); }, 0},
    {"failed", "failed", [](const Run& r) { return static_cast<double>(r.load.failed); }, 0},
    {"duration_s", "seconds", [](const Run& r) { return r.load.duration_s; }, 2},
    {"requests_per_s", "req/s", [](const Run& r) { return r.PerSecond(r.requests()); }, 2},
    {"input_tokens_per_s", "in tok/s", [](const Run& r) { return r.PerSecond(r.input()); }},
    {"output_tokens_per_s", "out tok/s", OutputPerSecond},
    {"total_tokens_per_s", "total tok/s",
     [](const Run& r) { return r.PerSecond(r.input() + r.output()); }},
    {"tokens_per_s_per_user", "tok/s/user", TokensPerUser},
};

const std::vector<Metric> kLatency{
    {"ttft_mean_ms", "TTFT mean", [](const Run& r) { return r.latency.ttft_mean_ms; }},
    {"ttft_p50_ms", "p50", [](const Run& r) { return r.latency.ttft_p50_ms; }},
    {"ttft_p90_ms", "p90", [](const Run& r) { return r.latency.ttft_p90_ms; }},
    {"ttft_p99_ms", "p99", [](const Run& r) { return r.latency.ttft_p99_ms; }},
    {"tpot_p50_ms", "TPOT p50", [](const Run& r) { return r.latency.tpot_p50_ms; }, 2},
    {"tpot_p90_ms", "p90", [](const Run& r) { return r.latency.tpot_p90_ms; }, 2},
    {"tpot_p99_ms", "p99", [](const Run& r) { return r.latency.tpot_p99_ms; }, 2},
    {"itl_p99_ms", "ITL p99", [](const Run& r) { return r.latency.itl_p99_ms; }, 2},
    {"e2e_p50_ms", "E2E p50", [](const Run& r) { return r.latency.e2e_p50_ms; }},
    {"e2e_p99_ms", "p99", [](const Run& r) { return r.latency.e2e_p99_ms; }},
};

const std::vector<Metric> kEngine{
    {"steps", "steps", [](const Run& r) { return r.steps(); }, 0},
    {"rows_per_step", "rows/step",
     [](const Run& r) { return Ratio(static_cast<double>(r.load.counts.rows), r.steps()); }},
    {"prefix_hit_rate", "cached%",
     [](const Run& r) { return Ratio(static_cast<double>(r.load.cached_tokens), r.input()); }, 1,
     100},
    {"block_hits", "blocks hit",
     [](const Run& r) { return static_cast<double>(r.load.counts.block_hits); }, 0},
    {"block_lookups", "of",
     [](const Run& r) { return static_cast<double>(r.load.counts.block_lookups); }, 0},
    {"preemptions", "preempted",
     [](const Run& r) { return static_cast<double>(r.load.counts.preemptions); }, 0},
    {"evictions", "evicted",
     [](const Run& r) { return static_cast<double>(r.load.counts.evictions); }, 0},
    {"plan_us_per_step", "plan us/step",
     [](const Run& r) { return Ratio(r.load.counts.plan_ms * 1000, r.steps()); }},
    {"idle_share", "idle%",
     [](const Run& r) {
       return Ratio(r.load.counts.idle_ms, r.load.counts.idle_ms + r.load.counts.run_ms);
     },
     1, 100},
    {"peak_resident_bytes", "peak MiB", [](const Run& r) { return r.peak_resident_bytes; }, 0,
     1.0 / (1 << 20)},
};

// Median over the runs; NaN when one of them has none.
double MedianOf(const Row& row, double (*of)(const Run&)) {
  std::vector<double> values;
  for (const Run& run : row.runs) values.push_back(of(run));
  const bool known = std::none_of(values.begin(), values.end(), [](double v) { return v != v; });
  return known ? Median(values) : std::nan("");
}

// Before the model is opened: what can be said from the flags alone.
Result<engine::EngineOptions> CheckFlags(const BenchEngineFlags& f) {
  KURUMA_ASSIGN_OR_RETURN(engine::EngineOptions options, ToOptions(f.engine));
  const int64_t most = *std::max_element(f.concurrency.begin(), f.concurrency.end());
  options.max_queue = std::max(options.max_queue, most);
  return options;
}

Result<Workload> ReadWorkload(const BenchEngineFlags& f, const model::ModelConfig& config) {
  const WorkloadLimits limits{.vocab = config.vocab, .context = config.max_positions};
  if (f.trace_path.empty()) return MakeWorkload(f.workload, limits);
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(f.trace_path));
  return ParseTrace(text, f.trace_path == "-" ? "standard input" : f.trace_path, f.workload.seed,
                    limits);
}

class EngineBench {
 public:
  EngineBench(const BenchEngineFlags& flags, const engine::EngineOptions& options,
              const LoadedModel& loaded)
      : flags_(flags), options_(options), model_(*loaded.model) {}

  Result<std::vector<Row>> Measure(const Workload& workload) {
    const Workload warmup =
        MakeWarmup(workload, flags_.warmup, flags_.workload.seed, model_.config().vocab);
    std::vector<Row> rows;
    for (const int64_t concurrency : flags_.concurrency) {
      Row row{.concurrency = concurrency, .runs = {}};
      for (int i = 0; i < flags_.repeat; ++i) {
        KURUMA_ASSIGN_OR_RETURN(Run run, MeasureOnce(workload, warmup, concurrency));
        row.runs.push_back(std::move(run));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  // An engine of its own, so that no run finds what another left in the cache.
  Result<Run> MeasureOnce(const Workload& workload, const Workload& warmup, int64_t concurrency) {
    KURUMA_ASSIGN_OR_RETURN(const auto engine, engine::Engine::Create(&model_, options_));
    const LoadOptions load{concurrency, fmt::format("concurrency {}", concurrency)};
    KURUMA_ASSIGN_OR_RETURN(const LoadResult warm, RunLoad(engine.get(), warmup, load));
    if (warm.failed > 0) return Internal("warm-up: " + warm.first_error);
    Run run;
    KURUMA_ASSIGN_OR_RETURN(run.load, RunLoad(engine.get(), workload, load));
    run.latency = Summarize(run.load.times);
    run.peak_resident_bytes = static_cast<double>(device::PeakResidentBytes());
    return run;
  }

  const BenchEngineFlags& flags_;
  const engine::EngineOptions options_;
  model::Model& model_;
};

Json WorkloadJson(const BenchEngineFlags& f, const Workload& workload) {
  int64_t input = 0;
  int64_t output = 0;
  for (const WorkloadRequest& request : workload.requests) {
    input += static_cast<int64_t>(request.prompt.size());
    output += request.output_tokens;
  }
  Json out{{"requests", workload.requests.size()},
           {"input_tokens", input},
           {"output_tokens", output},
           {"seed", f.workload.seed}};
  if (!f.trace_path.empty()) {
    out["trace"] = f.trace_path;
    return out;
  }
  out["input_len"] = f.workload.input_len;
  out["output_len"] = f.workload.output_len;
  out["range_ratio"] = f.workload.range_ratio;
  out["prefix_len"] = f.workload.prefix_len;
  out["num_prefixes"] = f.workload.num_prefixes;
  out["request_rate"] = nullptr;
  if (workload.timed) out["request_rate"] = f.workload.request_rate;
  return out;
}

Json ToJson(const BenchEngineFlags& f, const LoadedModel& loaded, const Workload& workload,
            const std::vector<Row>& rows) {
  Json out{{"model", f.model.directory},
           {"numerics", f.model.numerics},
           {"kernels", f.model.kernels},
           {"prefill_mode", f.model.prefill},
           {"threads", loaded.pool->threads()},
           {"load_ms", loaded.load_ms},
           {"repeat", f.repeat},
           {"warmup", f.warmup},
           {"engine",
            {{"max_sequences", f.engine.max_sequences},
             {"max_step_tokens", f.engine.max_step_tokens},
             {"kv_bytes", f.engine.kv_bytes},
             {"sync", f.engine.synchronous},
             {"prefix_cache", !f.engine.no_prefix_cache},
             {"replay", f.engine.replay},
             {"target_tpot_ms", f.engine.target_tpot_ms},
             {"chaos", f.engine.chaos_seed}}},
           {"workload", WorkloadJson(f, workload)},
           {"rows", Json::array()}};
  for (const Row& row : rows) {
    Json line{{"concurrency", row.concurrency}};
    for (const std::vector<Metric>* group : {&kThroughput, &kLatency, &kEngine}) {
      for (const Metric& metric : *group) {
        const double value = MedianOf(row, metric.of);
        line[metric.key] = value;
        // Counts, unless they are the mean of two runs.
        if (metric.decimals == 0 && value == std::floor(value)) {
          line[metric.key] = static_cast<int64_t>(value);
        }
      }
    }
    out["rows"].push_back(std::move(line));
  }
  return out;
}

// Columns as wide as they need to be.
std::string Table(const std::string& title, const std::vector<Metric>& metrics,
                  const std::vector<Row>& rows) {
  std::vector<std::string> lines{fmt::format("{:<12}{:>11}", title, "concurrency")};
  for (const Row& row : rows) lines.push_back(fmt::format("{:>23}", row.concurrency));
  for (const Metric& metric : metrics) {
    std::vector<std::string> cells{metric.head};
    for (const Row& row : rows) {
      const double value = MedianOf(row, metric.of) * metric.scale;
      cells.push_back(std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, metric.decimals));
    }
    size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, cell.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      lines[i] += fmt::format("  {:>{}}", cells[i], width);
    }
  }
  return fmt::format("\n{}\n", fmt::join(lines, "\n"));
}

std::string Describe(const BenchEngineFlags& f, const Workload& workload) {
  const WorkloadOptions& w = f.workload;
  if (!f.trace_path.empty()) {
    return fmt::format("{} requests of a trace", workload.requests.size());
  }
  std::string text = fmt::format("{} prompts of {} tokens, answers of {}", w.num_prompts,
                                 w.input_len, w.output_len);
  if (w.range_ratio > 0) text += fmt::format(" (both up to {:g}% off)", 100 * w.range_ratio);
  if (w.prefix_len > 0) {
    text += fmt::format(", behind one of {} prefixes of {}", w.num_prefixes, w.prefix_len);
  }
  if (workload.timed) text += fmt::format(", {:g} a second", w.request_rate);
  return text;
}

std::string ToText(const BenchEngineFlags& f, const LoadedModel& loaded, const Workload& workload,
                   const std::vector<Row>& rows) {
  std::string out = fmt::format(
      "{}: numerics {}, kernels {}, {} threads\n"
      "{}; at most {} run at once, {} tokens a step; {}\n",
      f.model.directory.empty() ? "bundled model" : f.model.directory, f.model.numerics,
      f.model.kernels, loaded.pool->threads(), Describe(f, workload), f.engine.max_sequences,
      f.engine.max_step_tokens,
      f.repeat == 1 ? "one run" : fmt::format("medians of {} runs", f.repeat));
  out += Table("throughput", kThroughput, rows);
  out += Table("latency, ms", kLatency, rows);
  return out + Table("engine", kEngine, rows);
}

Plot ToPlot(const BenchEngineFlags& f, const Workload& workload, const std::vector<Row>& rows) {
  Plot plot{.title = "Throughput and speed per user, by requests in flight",
            .subtitle = Describe(f, workload),
            .x_label = "speed per user, tokens/s (1 / median TPOT)",
            .y_label = "throughput, output tokens/s",
            .points = {}};
  for (const Row& row : rows) {
    plot.points.push_back({MedianOf(row, TokensPerUser), MedianOf(row, OutputPerSecond),
                           std::to_string(row.concurrency)});
  }
  return plot;
}

// What the numbers cannot show, said beside them.
void Note(const BenchEngineFlags& f, const Workload& workload) {
  const int64_t most = *std::max_element(f.concurrency.begin(), f.concurrency.end());
  const auto requests = static_cast<int64_t>(workload.requests.size());
  if (most > requests) {
    fmt::print(stderr, "note: a concurrency of {} is never reached (requests: {})\n", most,
               requests);
  }
  if (std::min(most, requests) > f.engine.max_sequences) {
    fmt::print(stderr, "note: of {} requests in flight {} run (--max-sequences), the others wait\n",
               std::min(most, requests), f.engine.max_sequences);
  }
}

// The first failure of any run.
Status Failures(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    for (const Run& run : row.runs) {
      if (run.load.failed == 0) continue;
      return Internal(fmt::format("concurrency {}: {} requests failed, the first one with: {}",
                                  row.concurrency, run.load.failed, run.load.first_error));
    }
  }
  return Status();
}

bool HasSecondToken(const Workload& workload) {
  return std::any_of(workload.requests.begin(), workload.requests.end(),
                     [](const WorkloadRequest& r) { return r.output_tokens > 1; });
}

// Opened before anything is measured, so that a wrong name costs no time. `file` stays closed
// without --plot.
Status OpenPlot(const std::string& path, const Workload& workload, std::ofstream* file) {
  if (path.empty()) return Status();
  if (!HasSecondToken(workload)) {
    return InvalidArgument("--plot: answers of one token have no speed per user");
  }
  file->open(path, std::ios::binary | std::ios::trunc);
  return *file ? Status() : InvalidArgument("--plot " + path + ": cannot be written");
}

int RunBenchEngine(const BenchEngineFlags& flags) {
  const auto options = CheckFlags(flags);
  if (!options.ok()) return Fail(kCommand, options.status());
  const auto loaded = LoadModel(flags.model, TokenizerUse::kOnlyForEngram);
  if (!loaded.ok()) return Fail(kCommand, loaded.status());
  const Result<Workload> workload = ReadWorkload(flags, loaded->model->config());
  if (!workload.ok()) return Fail(kCommand, workload.status());
  std::ofstream plot_file;
  const Status opened = OpenPlot(flags.plot_path, *workload, &plot_file);
  if (!opened.ok()) return Fail(kCommand, opened);
  const auto rows = EngineBench(flags, *options, *loaded).Measure(*workload);
  if (!rows.ok()) return Fail(kCommand, rows.status());
  const std::string out = flags.json ? Dump(ToJson(flags, *loaded, *workload, *rows)) + "\n"
                                     : ToText(flags, *loaded, *workload, *rows);
  if (!WriteOut(out)) return kExitBadInput;
  Note(flags, *workload);
  const Status failures = Failures(*rows);
  if (!failures.ok()) return Fail(kCommand, failures);
  if (flags.plot_path.empty()) return kExitOk;
  plot_file << ToSvg(ToPlot(flags, *workload, *rows));
  plot_file.close();
  if (plot_file) return kExitOk;
  return Fail(kCommand, InvalidArgument("--plot " + flags.plot_path + ": cannot be written"));
}

// Lengths and arrivals, or a trace instead of them.
void AddWorkloadFlags(CLI::App* command, BenchEngineFlags* f) {
  WorkloadOptions& w = f->workload;
  std::vector<CLI::Option*> shapes;
  const auto add = [&](const char* name, auto* value, const char* type, const char* help) {
    shapes.push_back(
        command->add_option(name, *value, help)->capture_default_str()->type_name(type));
  };
  add("--num-prompts", &w.num_prompts, "N", "Requests");
  add("--input-len", &w.input_len, "N", "Tokens of a prompt, its prefix not counted");
  add("--output-len", &w.output_len, "N", "Tokens of an answer; nothing else ends it");
  add("--range-ratio", &w.range_ratio, "R",
      "Both lengths are uniform in len*(1-R)..len*(1+R); at least 0, below 1");
  add("--prefix-len", &w.prefix_len, "N", "Tokens in front of every prompt that others share");
  add("--num-prefixes", &w.num_prefixes, "K", "Distinct prefixes, taken in turn");
  add("--request-rate", &w.request_rate, "R",
      "Requests per second, Poisson arrivals; inf: all are there from the start");
  CLI::Option* trace =
      command
          ->add_option("--trace", f->trace_path,
                       "JSON Lines of requests instead of the flags above (- is stdin)")
          ->type_name("FILE");
  for (CLI::Option* option : shapes) trace->excludes(option);
  command->add_option("--seed", w.seed, "Of tokens, lengths and arrivals")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str()
      ->type_name("N");
}

void AddMeasurementFlags(CLI::App* command, BenchEngineFlags* f) {
  command
      ->add_option("--concurrency", f->concurrency,
                   "Requests in flight at most; one row of results for each number")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N,N,...");
  command->add_option("--warmup", f->warmup, "Requests sent first and not measured")
      ->check(CLI::Range(0, 1 << 10))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--repeat", f->repeat, "Runs of each row; medians are reported")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--json", f->json, "One JSON object instead of tables");
  command
      ->add_option("--plot", f->plot_path,
                   "Draws throughput over speed per user, one point per concurrency, as SVG")
      ->type_name("FILE.svg");
}

// `kuruma bench --batch 4 engine` and flags of bench that fell through would change nothing.
Status RefuseFlagsOf(const CLI::App& bench) {
  for (const CLI::Option* option : bench.get_options()) {
    if (option->count() == 0) continue;
    return InvalidArgument(option->get_name() +
                           " is a flag of kuruma bench; flags of kuruma bench engine come after "
                           "\"engine\" (see kuruma bench engine --help)");
  }
  return Status();
}

}  // namespace

void RegisterBenchEngine(CLI::App* bench, int* exit_code) {
  auto flags = std::make_shared<BenchEngineFlags>();
  CLI::App* command = bench->add_subcommand(
      "engine", "Many requests at once: throughput and latency of the serving engine");
  AddModelFlags(command, &flags->model, "--prefill-mode");
  command->remove_option(command->get_option("--chunk"));  // --max-step-tokens decides
  AddWorkloadFlags(command, flags.get());
  AddMeasurementFlags(command, flags.get());
  AddEngineFlags(command, &flags->engine);
  command->footer(
      "Examples:\n"
      "  kuruma bench engine --concurrency 1,4,16 --plot curve.svg\n"
      "  kuruma bench engine --model DIR --prefix-len 512 --num-prefixes 4 --json\n"
      "  kuruma bench engine --model DIR --trace requests.jsonl --concurrency 64\n"
      "A line of a trace: {\"arrival_s\": 0.5, \"input_len\": 100, \"output_len\": 20, "
      "\"prefix_len\": 256,\n\"prefix\": 0}. Every row and every repeat has an engine of its own "
      "with an empty cache. Answers are\ngreedy. docs/cli.md says how the numbers are defined.");
  command->callback([flags, exit_code, bench] {
    const Status misplaced = RefuseFlagsOf(*bench);
    *exit_code = misplaced.ok() ? RunBenchEngine(*flags) : Fail(kCommand, misplaced);
  });
}

}  // namespace kuruma
