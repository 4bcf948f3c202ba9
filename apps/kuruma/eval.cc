// kuruma eval: how many tasks of a file a model answers right.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer.h"
#include "commands.h"
#include "eval_task.h"
#include "inputs.h"
#include "model_loader.h"
#include "report.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

struct EvalFlags {
  ModelFlags model;
  std::string tasks_path;
  std::vector<std::string> families;
  bool json = false;
  bool drafts = false;
};

// Drafts made after every token of the answers, compared with what the model then wrote.
struct DraftCounts {
  std::vector<int64_t> offered;   // [block_size] drafts at this place that had a token to match
  std::vector<int64_t> accepted;  // of those: this draft and all before it were right

  void Resize(int places) {
    offered.resize(places);
    accepted.resize(places);
  }
  // Expected number of accepted drafts in a block.
  double Mean() const {
    double mean = 0;
    for (size_t i = 0; i < offered.size(); ++i) mean += Share(i);
    return mean;
  }
  double Share(size_t place) const {
    return offered[place] == 0
               ? 0
               : static_cast<double>(accepted[place]) / static_cast<double>(offered[place]);
  }
};

struct FamilyResult {
  std::string name;
  int64_t total = 0;
  int64_t passed = 0;
  std::optional<int64_t> valid;  // families of JSON and tool calls
  DraftCounts drafts;
};

struct Failure {
  std::string id;
  std::string output;
};

struct EvalResult {
  std::vector<FamilyResult> families;  // in order of appearance
  std::vector<Failure> failures;
  bool interrupted = false;
};

class Evaluation {
 public:
  Evaluation(const EvalFlags& flags, const LoadedModel& loaded)
      : flags_(flags), loaded_(loaded), answerer_(loaded) {}

  Result<EvalResult> Run(const std::vector<Task>& tasks) {
    Progress progress("evaluating", static_cast<int64_t>(tasks.size()));
    for (size_t i = 0; i < tasks.size() && !result_.interrupted; ++i) {
      const Status done = RunTask(tasks[i]);
      if (!done.ok()) return Status(done.code(), "task " + tasks[i].id + ": " + done.message());
      progress.Update(static_cast<int64_t>(i + 1));
    }
    return std::move(result_);
  }

 private:
  Status RunTask(const Task& task) {
    AnswerOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = task.max_tokens;
    std::vector<std::vector<int32_t>> blocks;
    if (flags_.drafts) {
      options.watch = [&](const model::SequenceState& state, int32_t token) {
        return MakeDrafts(state, token, &blocks);
      };
    }
    KURUMA_ASSIGN_OR_RETURN(
        const Answer answer,
        answerer_.Run(task.conversation, options, [](const text::ParserEvent&) { return true; }));
    if (answer.generation.finish_reason == "interrupted") {
      result_.interrupted = true;
      return Status();
    }
    FamilyResult& family = Family(task.family);
    const Verdict verdict = Judge(task.check, answer.parsed);
    ++family.total;
    family.passed += verdict.passed ? 1 : 0;
    if (task.check.kind == Check::Kind::kJson || task.check.kind == Check::Kind::kToolCall) {
      family.valid = family.valid.value_or(0) + (verdict.valid ? 1 : 0);
    }
    CountDrafts(answer.generation.ids, blocks, &family.drafts);
    if (verdict.passed) return Status();
    KURUMA_ASSIGN_OR_RETURN(std::string output, Output(answer.generation.ids));
    result_.failures.push_back({task.id, std::move(output)});
    return Status();
  }

  FamilyResult& Family(const std::string& name) {
    auto& families = result_.families;
    const auto found = std::find_if(families.begin(), families.end(),
                                    [&](const FamilyResult& f) { return f.name == name; });
    if (found != families.end()) return *found;
    families.emplace_back().name = name;
    families.back().drafts.Resize(flags_.drafts ? loaded_.model->config().draft.block_size : 0);
    return families.back();
  }

  Status MakeDrafts(const model::SequenceState& state, int32_t token,
                    std::vector<std::vector<int32_t>>* blocks) {
    const model::DraftInput input{&state, token};
    model::DraftResult drafted;
    const auto best = [](int64_t, int, std::span<const float> logits) {
      return model::ArgMax(logits);
    };
    KURUMA_RETURN_IF_ERROR(loaded_.model->Draft({&input, 1}, best, &drafted));
    blocks->push_back(std::move(drafted.tokens));
    return Status();
  }

  // Block i was made after ids[i].
  static void CountDrafts(const std::vector<int32_t>& ids,
                          const std::vector<std::vector<int32_t>>& blocks, DraftCounts* counts) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      bool right = true;
      for (size_t place = 0; place < blocks[i].size() && i + 1 + place < ids.size(); ++place) {
        right = right && blocks[i][place] == ids[i + 1 + place];
        ++counts->offered[place];
        counts->accepted[place] += right ? 1 : 0;
      }
    }
  }

  // Everything the model wrote, markup included, but for the end token.
  Result<std::string> Output(std::vector<int32_t> ids) const {
    if (!ids.empty() && ids.back() == loaded_.model->config().eos_token) ids.pop_back();
    return loaded_.tokenizer->Decode(ids);
  }

  const EvalFlags& flags_;
  const LoadedModel& loaded_;
  Answerer answerer_;
  EvalResult result_;
};

FamilyResult Sum(const EvalResult& result) {
  FamilyResult all;
  all.name = "all";
  for (const FamilyResult& family : result.families) {
    all.total += family.total;
    all.passed += family.passed;
    all.drafts.Resize(static_cast<int>(family.drafts.offered.size()));
    for (size_t i = 0; i < family.drafts.offered.size(); ++i) {
      all.drafts.offered[i] += family.drafts.offered[i];
      all.drafts.accepted[i] += family.drafts.accepted[i];
    }
  }
  return all;
}

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string TableRow(const FamilyResult& family, size_t width) {
  std::string row = fmt::format("{:{}} {:6} {:6} {:6.1f}", family.name, width, family.passed,
                                family.total, Percent(family.passed, family.total));
  row += family.valid ? fmt::format(" {:6.1f}", Percent(*family.valid, family.total)) : "      -";
  if (!family.drafts.offered.empty()) {
    row += fmt::format(" {:6.2f}  ", family.drafts.Mean());
    for (size_t i = 0; i < family.drafts.offered.size(); ++i) {
      row += fmt::format(" {:5.1f}", 100 * family.drafts.Share(i));
    }
  }
  return row + "\n";
}

std::string ToText(const EvalResult& result) {
  const FamilyResult all = Sum(result);
  size_t width = 6;
  for (const FamilyResult& family : result.families) width = std::max(width, family.name.size());
  std::string out = fmt::format("{:{}} {:>6} {:>6} {:>6} {:>6}", "family", width, "passed", "total",
                                "%", "valid%");
  if (!all.drafts.offered.empty()) out += " drafts   accepted % by place";
  out += "\n";
  for (const FamilyResult& family : result.families) out += TableRow(family, width);
  return out + TableRow(all, width);
}

Json ToJson(const FamilyResult& family) {
  Json out{{"total", family.total}, {"passed", family.passed}};
  if (family.valid) out["valid"] = *family.valid;
  if (!family.drafts.offered.empty()) {
    out["drafts"] = {{"offered", family.drafts.offered}, {"accepted", family.drafts.accepted}};
  }
  return out;
}

Json ToJson(const EvalResult& result) {
  const FamilyResult all = Sum(result);
  Json out{{"total", all.total}, {"passed", all.passed}, {"families", Json::object()}};
  for (const FamilyResult& family : result.families) out["families"][family.name] = ToJson(family);
  out["failures"] = Json::array();
  for (const Failure& failure : result.failures) {
    out["failures"].push_back({{"id", failure.id}, {"output", failure.output}});
  }
  return out;
}

Result<std::vector<Task>> ReadTasks(const EvalFlags& flags) {
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(flags.tasks_path));
  const std::string name = flags.tasks_path == "-" ? "standard input" : flags.tasks_path;
  KURUMA_ASSIGN_OR_RETURN(std::vector<Task> tasks, ParseTasks(text, name));
  for (const std::string& family : flags.families) {
    if (std::none_of(tasks.begin(), tasks.end(),
                     [&](const Task& task) { return task.family == family; })) {
      return InvalidArgument(fmt::format("{}: no task of family \"{}\"", name, family));
    }
  }
  const auto unwanted = [&](const Task& task) {
    return !flags.families.empty() && std::find(flags.families.begin(), flags.families.end(),
                                                task.family) == flags.families.end();
  };
  std::erase_if(tasks, unwanted);
  return tasks;
}

int RunEval(const EvalFlags& flags) {
  const Result<std::vector<Task>> tasks = ReadTasks(flags);
  if (!tasks.ok()) return Fail("eval", tasks.status());
  const auto loaded = LoadModel(flags.model, TokenizerUse::kRequired);
  if (!loaded.ok()) return Fail("eval", loaded.status());
  if (flags.drafts && loaded->model->config().draft.stages == 0) {
    return Fail("eval", InvalidArgument("--drafts: this model has no draft stages"));
  }
  const Result<EvalResult> result = Evaluation(flags, *loaded).Run(*tasks);
  if (!result.ok()) return Fail("eval", result.status());
  if (!WriteOut(flags.json ? Dump(ToJson(*result)) + "\n" : ToText(*result))) return kExitBadInput;
  return result->interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace

void RegisterEval(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand("eval", "Measure a model's accuracy on a file of tasks");
  AddModelFlags(command, &flags->model);
  command->add_option("--tasks", flags->tasks_path, "JSON Lines of tasks (- is stdin)")
      ->required()
      ->type_name("FILE");
  command->add_option("--family", flags->families, "Only tasks of this family; repeatable")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME");
  command->add_flag("--drafts", flags->drafts,
                    "Also measure how many draft tokens are accepted, by place");
  command->add_flag("--json", flags->json, "One JSON object at the end instead of a table");
  command->footer(
      "Examples:\n"
      "  kuruma eval --tasks models/tiny/eval.jsonl\n"
      "  kuruma eval --model DIR --tasks tasks.jsonl --family faq --json\n"
      "A task is {\"id\", \"family\", \"messages\", \"tools\", \"thinking\": bool, "
      "\"max_tokens\",\n"
      "\"check\": {\"kind\", \"value\"}}; kinds: exact (the content, but for space around it), "
      "contains,\njson (equal value), tool_call (list of {\"name\", \"arguments\"}). Answers are "
      "greedy, so that two\nruns agree. valid%: answers that are JSON, or complete calls. --json "
      "writes {\"total\", \"passed\",\n\"families\", \"failures\": [{\"id\", \"output\"}]}. "
      "drafts: "
      "accepted drafts per block, expected; by place:\nhow often a draft and all before it are "
      "what "
      "the model then wrote.");
  command->callback([flags, exit_code] { *exit_code = RunEval(*flags); });
}

}  // namespace kuruma
